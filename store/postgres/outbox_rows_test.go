package postgres_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/store/postgres"
)

func TestDecodeRow(t *testing.T) {
	at := time.Date(2013, 1, 1, 5, 15, 0, 123456000, time.UTC)
	row := [][]byte{be(42), be(at.UnixMicro() - 946684800*1_000_000), nil, []byte("N14228"), []byte("flight.departed"),
		[]byte(`{"traceparent": "00-ab", "n": 7, "list": [1,"a"], "none": null, "quote": "a\"b"}`), {0, 0xff, 'x'}}
	m, err := postgres.DecodeRow(messageid.Outbox{UID: "0123456789ab"}, row)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "0123456789ab-42-dd0t53cf9c" || m.Seq != 42 || m.Key != "N14228" || m.Topic != "flight.departed" ||
		string(m.Payload) != "\x00\xffx" || !m.CreatedAt.Equal(at) || m.Attempt != 1 {
		t.Errorf("got %+v", m)
	}
	want := map[string]string{"traceparent": "00-ab", "n": "7", "list": `[1,"a"]`, "none": "", "quote": `a"b`}
	for name, value := range want {
		if m.Headers[name] != value {
			t.Errorf("header %q is %q, want %q", name, m.Headers[name], value)
		}
	}
	if len(m.Headers) != len(want) {
		t.Errorf("got headers %q", m.Headers)
	}
}

func be(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func FuzzDecodeRow(f *testing.F) {
	f.Add(be(1), be(2), []byte("id"), []byte("key"), []byte("topic"), []byte(`{"a":"b"}`), []byte("payload"))
	f.Add([]byte{}, be(2), []byte{}, []byte("\x00"), []byte{0xff}, []byte(`{"a":{"b":[1,2,{}]},"a":null}`), []byte{})
	f.Add(be(-1), be(-1<<63), []byte{}, []byte{}, []byte{}, []byte(`[]`), []byte{})
	f.Fuzz(func(t *testing.T, seq, at, id, key, topic, headers, payload []byte) {
		m, err := postgres.DecodeRow(messageid.Outbox{UID: "uid"}, [][]byte{seq, at, id, key, topic, headers, payload})
		if err != nil {
			return
		}
		if m.Key != string(key) || m.Topic != string(topic) || string(m.Payload) != string(payload) || len(id) > 0 && m.ID != string(id) || m.ID == "" {
			t.Errorf("what came out is not what went in: %+v", m)
		}
	})
}
