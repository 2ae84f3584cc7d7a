// The tests' client program for franz-go.
package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/clients/lines"
)

const (
	largest = 16 << 20
	timeout = 60 * time.Second
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	var own member
	lines.Serve(map[string]lines.Action{
		"write":  write,
		"read":   read,
		"join":   own.join,
		"poll":   own.poll,
		"commit": own.commit,
		"leave":  own.leave,

		"administer": administer,
	})
}

// reaching has the cluster's address, and how to authenticate.
func reaching(request *lines.Request) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(request.Address, ",")...)}
	encrypted, err := request.TLS()
	if err != nil {
		return nil, err
	}
	if encrypted != nil {
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	proof := scram.Auth{User: request.User, Pass: request.Password}
	switch request.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: request.User, Pass: request.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(proof.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(proof.AsSha512Mechanism()))
	}
	return options, nil
}

func connect(request *lines.Request, more ...kgo.Opt) (*kgo.Client, error) {
	options, err := reaching(request)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(options, more...)...)
}

func write(request *lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[request.Codec]),
		kgo.ProducerBatchMaxBytes(largest),
	}
	if request.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(request.TransactionalID))
	}
	client, err := connect(request, options...)
	if err != nil {
		return lines.Answer{}, err
	}
	defer client.Close()
	if request.TransactionalID != "" {
		if err := client.BeginTransaction(); err != nil {
			return lines.Answer{}, err
		}
	}
	records := make([]*kgo.Record, 0, len(request.Records))
	for _, requested := range request.Records {
		record := &kgo.Record{Topic: request.Topic, Partition: requested.Partition, Key: requested.Key, Value: requested.Value}
		for _, header := range requested.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	err = client.ProduceSync(ctx, records...).FirstErr()
	if request.TransactionalID != "" {
		end := kgo.TryCommit
		if request.Abort {
			end = kgo.TryAbort
		}
		err = errors.Join(err, client.EndTransaction(ctx, end))
	}
	return lines.Answer{}, err
}

func read(request *lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	partitions := make(map[int32]kgo.Offset)
	for partition := range request.Partitions {
		partitions[partition] = kgo.NewOffset().AtStart()
	}
	options := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{request.Topic: partitions}),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if request.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := connect(request, options...)
	if err != nil {
		return lines.Answer{}, err
	}
	defer client.Close()
	var answer lines.Answer
	for len(answer.Records) < request.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return answer, err
		}
		fetches.EachRecord(func(record *kgo.Record) { answer.Records = append(answer.Records, toRecord(record)) })
	}
	return answer, nil
}

func toRecord(record *kgo.Record) lines.Record {
	result := lines.Record{Partition: record.Partition, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		result.Headers = append(result.Headers, lines.Header{Key: header.Key, Value: header.Value})
	}
	return result
}

// member of a group; the program has at most one.
type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned []int32
}

func (own *member) join(request *lines.Request) (lines.Answer, error) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(own.gained),
		kgo.OnPartitionsRevoked(own.lost),
		kgo.OnPartitionsLost(own.lost),
	}
	if request.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	client, err := connect(request, options...)
	own.client = client
	return lines.Answer{}, err
}

func (own *member) poll(request *lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), request.Timeout())
	defer cancel()
	var answer lines.Answer
	fetches := own.client.PollFetches(ctx)
	fetches.EachRecord(func(record *kgo.Record) { answer.Records = append(answer.Records, toRecord(record)) })
	own.lock.Lock()
	answer.Assigned = slices.Clone(own.assigned)
	own.lock.Unlock()
	err := fetches.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return answer, err
}

func (own *member) commit(*lines.Request) (lines.Answer, error) {
	return lines.Answer{}, own.client.CommitUncommittedOffsets(context.Background())
}

func (own *member) leave(*lines.Request) (lines.Answer, error) {
	own.client.Close()
	return lines.Answer{}, nil
}

func (own *member) gained(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	own.lock.Lock()
	defer own.lock.Unlock()
	for _, partitions := range topics {
		own.assigned = append(own.assigned, partitions...)
	}
}

func (own *member) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	own.lock.Lock()
	defer own.lock.Unlock()
	for _, partitions := range topics {
		own.assigned = slices.DeleteFunc(own.assigned, func(held int32) bool { return slices.Contains(partitions, held) })
	}
}

// administer creates, changes, describes and deletes a topic.
func administer(request *lines.Request) (lines.Answer, error) {
	var answer lines.Answer
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client, err := connect(request)
	if err != nil {
		return answer, err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	first, second := "1234000", "999000"
	if _, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &first}, request.Topic); err != nil {
		return answer, err
	}
	retention := func() error {
		described, err := admin.DescribeTopicConfigs(ctx, request.Topic)
		if err != nil {
			return err
		}
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				answer.Seen = append(answer.Seen, config.MaybeValue())
			}
		}
		return nil
	}
	if err := retention(); err != nil {
		return answer, err
	}
	altered := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &second}}
	if _, err := admin.AlterTopicConfigs(ctx, altered, request.Topic); err != nil {
		return answer, err
	}
	if err := retention(); err != nil {
		return answer, err
	}
	if _, err := admin.UpdatePartitions(ctx, 4, request.Topic); err != nil {
		return answer, err
	}
	topics, err := admin.ListTopics(ctx, request.Topic)
	if err != nil {
		return answer, err
	}
	answer.Seen = append(answer.Seen, strconv.Itoa(len(topics[request.Topic].Partitions)))
	_, err = admin.DeleteTopic(ctx, request.Topic)
	return answer, err
}
