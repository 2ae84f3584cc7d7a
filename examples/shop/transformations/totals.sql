CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, round(sum(price), 2) AS spent
FROM parsed
GROUP BY customer
