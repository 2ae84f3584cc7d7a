// The tests' client program for sarama.
package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"ottla/clients/lines"
)

const (
	largest = 16 << 20
	timeout = 60 * time.Second
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
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

func servers(request *lines.Request) []string {
	return strings.Split(request.Address, ",")
}

// proof is a SCRAM exchange, which sarama does not implement.
type proof struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (own *proof) Begin(user, password, authorization string) error {
	client, err := own.hash.NewClient(user, password, authorization)
	if err == nil {
		own.ClientConversation = client.NewConversation()
	}
	return err
}

// secure configures authentication and encryption.
func secure(config *sarama.Config, request *lines.Request) error {
	encrypted, err := request.TLS()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = encrypted != nil, encrypted
	if request.Mechanism == "" {
		return nil
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(request.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = request.User, request.Password
	hash := scram.SHA256
	if request.Mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &proof{hash: hash} }
	return nil
}

func settings(request *lines.Request) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Return.Errors = true
	return config, secure(config, request)
}

func write(request *lines.Request) (lines.Answer, error) {
	config, err := settings(request)
	if err != nil {
		return lines.Answer{}, err
	}
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[request.Codec]
	config.Producer.MaxMessageBytes = largest
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	if request.TransactionalID != "" {
		config.Producer.Transaction.ID = request.TransactionalID
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(servers(request), config)
	if err != nil {
		return lines.Answer{}, err
	}
	messages := make([]*sarama.ProducerMessage, 0, len(request.Records))
	for _, record := range request.Records {
		messages = append(messages, message(request.Topic, record))
	}
	if request.TransactionalID == "" {
		err = producer.SendMessages(messages)
	} else {
		err = transact(producer, messages, request)
	}
	return lines.Answer{}, errors.Join(err, producer.Close())
}

func transact(producer sarama.SyncProducer, messages []*sarama.ProducerMessage, request *lines.Request) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	if request.OffsetsOf != "" {
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			request.Topic: {{Partition: 0, Offset: int64(len(messages))}},
		}
		if err := producer.AddOffsetsToTxn(offsets, request.OffsetsOf); err != nil {
			return err
		}
	}
	if request.Abort {
		return producer.AbortTxn()
	}
	return producer.CommitTxn()
}

func message(topic string, record lines.Record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Partition: record.Partition}
	if record.Key != nil {
		message.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		message.Value = sarama.ByteEncoder(record.Value)
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
	}
	return message
}

func read(request *lines.Request) (lines.Answer, error) {
	config, err := settings(request)
	if err != nil {
		return lines.Answer{}, err
	}
	if request.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(servers(request), config)
	if err != nil {
		return lines.Answer{}, err
	}
	messages, failed := make(chan *sarama.ConsumerMessage), make(chan error)
	done, stop := context.WithTimeout(context.Background(), timeout)
	defer stop()
	for partition := range request.Partitions {
		reader, err := consumer.ConsumePartition(request.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return lines.Answer{}, err
		}
		defer reader.AsyncClose()
		go pass(done, reader, messages, failed)
	}
	var answer lines.Answer
	for len(answer.Records) < request.Count {
		select {
		case message := <-messages:
			answer.Records = append(answer.Records, toRecord(message))
		case err := <-failed:
			return answer, err
		case <-done.Done():
			return answer, done.Err()
		}
	}
	return answer, nil
}

func pass(done context.Context, reader sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, failed chan<- error) {
	for {
		select {
		case message := <-reader.Messages():
			select {
			case messages <- message:
			case <-done.Done():
				return
			}
		case err := <-reader.Errors():
			select {
			case failed <- err:
			case <-done.Done():
				return
			}
		case <-done.Done():
			return
		}
	}
}

func toRecord(message *sarama.ConsumerMessage) lines.Record {
	result := lines.Record{Partition: message.Partition, Key: message.Key, Value: message.Value}
	for _, header := range message.Headers {
		result.Headers = append(result.Headers, lines.Header{Key: string(header.Key), Value: header.Value})
	}
	return result
}

// member of a group; the program has at most one.
type member struct {
	group    sarama.ConsumerGroup
	messages chan *sarama.ConsumerMessage
	stop     context.CancelFunc
	lock     sync.Mutex
	session  sarama.ConsumerGroupSession
}

func (own *member) join(request *lines.Request) (lines.Answer, error) {
	config, err := settings(request)
	if err != nil {
		return lines.Answer{}, err
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	group, err := sarama.NewConsumerGroup(servers(request), request.Group, config)
	if err != nil {
		return lines.Answer{}, err
	}
	own.group, own.messages = group, make(chan *sarama.ConsumerMessage, 10_000)
	done, stop := context.WithCancel(context.Background())
	own.stop = stop
	go func() {
		for done.Err() == nil {
			if group.Consume(done, []string{request.Topic}, own) != nil {
				return
			}
		}
	}()
	return lines.Answer{}, nil
}

func (own *member) poll(request *lines.Request) (lines.Answer, error) {
	var answer lines.Answer
	end := time.After(request.Timeout())
	for {
		select {
		case message := <-own.messages:
			answer.Records = append(answer.Records, toRecord(message))
			continue
		case err := <-own.group.Errors():
			return answer, err
		case <-end:
		}
		own.lock.Lock()
		defer own.lock.Unlock()
		if own.session != nil {
			for _, partitions := range own.session.Claims() {
				answer.Assigned = append(answer.Assigned, partitions...)
			}
		}
		return answer, nil
	}
}

func (own *member) commit(*lines.Request) (lines.Answer, error) {
	own.lock.Lock()
	defer own.lock.Unlock()
	if own.session == nil {
		return lines.Answer{}, errors.New("no partitions are assigned")
	}
	own.session.Commit()
	return lines.Answer{}, nil
}

func (own *member) leave(*lines.Request) (lines.Answer, error) {
	own.stop()
	return lines.Answer{}, own.group.Close()
}

// Setup, Cleanup and ConsumeClaim are sarama's callbacks.
func (own *member) Setup(session sarama.ConsumerGroupSession) error {
	own.lock.Lock()
	defer own.lock.Unlock()
	own.session = session
	return nil
}

func (own *member) Cleanup(sarama.ConsumerGroupSession) error {
	own.lock.Lock()
	defer own.lock.Unlock()
	own.session = nil
	return nil
}

func (own *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		own.messages <- message
	}
	return nil
}

// administer creates, changes, describes and deletes a topic.
func administer(request *lines.Request) (lines.Answer, error) {
	var answer lines.Answer
	config, err := settings(request)
	if err != nil {
		return lines.Answer{}, err
	}
	admin, err := sarama.NewClusterAdmin(servers(request), config)
	if err != nil {
		return answer, err
	}
	defer admin.Close()
	first, second := "1234000", "999000"
	detail := &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &first},
	}
	if err := admin.CreateTopic(request.Topic, detail, false); err != nil {
		return answer, err
	}
	retention := func() error {
		resource := sarama.ConfigResource{
			Type: sarama.TopicResource, Name: request.Topic, ConfigNames: []string{"retention.ms"},
		}
		entries, err := admin.DescribeConfig(resource)
		if err == nil {
			answer.Seen = append(answer.Seen, entries[0].Value)
		}
		return err
	}
	if err := retention(); err != nil {
		return answer, err
	}
	altered := map[string]*string{"retention.ms": &second}
	if err := admin.AlterConfig(sarama.TopicResource, request.Topic, altered, false); err != nil {
		return answer, err
	}
	if err := retention(); err != nil {
		return answer, err
	}
	if err := admin.CreatePartitions(request.Topic, 4, nil, false); err != nil {
		return answer, err
	}
	topics, err := admin.ListTopics()
	if err != nil {
		return answer, err
	}
	answer.Seen = append(answer.Seen, strconv.Itoa(int(topics[request.Topic].NumPartitions)))
	return answer, admin.DeleteTopic(request.Topic)
}
