// Package lines is the protocol of client programs: one request and one answer per line, both in JSON.
package lines

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Header of a record; a value that is nil is null on the wire.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Record to write or as read; a key or value that is nil is null on the wire.
type Record struct {
	Partition int32    `json:"partition"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Request has the fields of all actions.
type Request struct {
	Do              string   `json:"do"`
	Address         string   `json:"address"`
	Topic           string   `json:"topic"`
	Codec           string   `json:"codec"`
	Records         []Record `json:"records"`
	TransactionalID string   `json:"transactional_id"`
	Abort           bool     `json:"abort"`
	OffsetsOf       string   `json:"offsets_of"`
	Partitions      int32    `json:"partitions"`
	Count           int      `json:"count"`
	Committed       bool     `json:"committed"`
	Group           string   `json:"group"`
	Protocol        string   `json:"protocol"`
	TimeoutMS       int      `json:"timeout_ms"`
	Trusted         string   `json:"trusted"`
	Mechanism       string   `json:"mechanism"`
	User            string   `json:"user"`
	Password        string   `json:"password"`
}

// TLS returns the TLS configuration, or nil without encryption.
func (request *Request) TLS() (*tls.Config, error) {
	if request.Trusted == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(request.Trusted)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", request.Trusted)
	}
	return &tls.Config{RootCAs: trusted}, nil
}

// Timeout returns how long a poll may wait.
func (request *Request) Timeout() time.Duration {
	return time.Duration(request.TimeoutMS) * time.Millisecond
}

// Answer has the records read, a member's assigned partitions, and the values that an admin client saw.
type Answer struct {
	Records  []Record `json:"records,omitempty"`
	Assigned []int32  `json:"assigned,omitempty"`
	Seen     []string `json:"seen,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// Action performs a request.
type Action func(*Request) (Answer, error)

// Serve answers requests until the end of the input.
func Serve(actions map[string]Action) {
	input, output := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		answer := answerTo(line, err, actions)
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		output.Write(append(text, '\n'))
		output.Flush()
	}
}

func answerTo(line []byte, err error, actions map[string]Action) Answer {
	var request Request
	if err == nil {
		err = json.Unmarshal(line, &request)
	}
	if err != nil {
		return Answer{Error: err.Error()}
	}
	action, known := actions[request.Do]
	if !known {
		return Answer{Error: fmt.Sprintf("%q is not known", request.Do)}
	}
	answer, err := action(&request)
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}
