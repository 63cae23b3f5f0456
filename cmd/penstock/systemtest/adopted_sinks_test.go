package systemtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/pubsubtest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// One relay reads a table for each sink. All rows arrive, with their ids and in the order of their keys, also with ids and keys
// that some sinks write in another way.
func TestAdoptToEachSink(t *testing.T) {
	const keys, each = 3, 7
	check := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	aws, stopAWS := awstest.Serve()
	t.Cleanup(stopAWS)
	google, stopGoogle, err := pubsubtest.Serve()
	check(t, err)
	t.Cleanup(stopGoogle)
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1))
	check(t, err)
	t.Cleanup(kafka.Close)
	sinks := map[string]string{
		"redis":  "redis://" + testserver.StartRedis(t).Address,
		"sqs":    "sqs://sqs." + awstest.Region + ".amazonaws.com/" + awstest.Account + "/x?allow_private=true&endpoint=http://" + aws,
		"sns":    "sns://arn:aws:sns:" + awstest.Region + ":" + awstest.Account + ":x?allow_private=true&endpoint=http://" + aws,
		"pubsub": "pubsub://" + pubsubtest.Project + "/adopt?allow_private=true&endpoint=http://" + google,
		"kafka":  "kafka://" + strings.Join(kafka.ListenAddrs(), ","), "rabbitmq": testserver.RabbitMQURL(t),
	}
	database := postgrestest.Database(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	defer conn.Close(t.Context())
	brokers, config := map[string]readback.Broker{}, fmt.Sprintf("database_url: %q\nrelay: {lease: %s}\nsubscriptions:\n", database, longLease)
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		broker, err := drivers.ReadBack(sinks[name], t.TempDir(), "penstock_adopt_"+name)
		check(t, err)
		check(t, broker.Open(t.Context(), nil))
		t.Cleanup(func() { _ = broker.Close() })
		brokers[name] = broker
		_, err = conn.Exec(t.Context(), fmt.Sprintf(`create table rows_%s (n bigint primary key, id text not null unique, key text, topic text, payload jsonb);
			insert into rows_%[1]s select n, 'row ü/' || n, 'the key ' || n %% %d, 'orders', jsonb_build_object('n', n) from generate_series(0, %d) n`, name, keys, keys*each-1))
		check(t, err)
		config += fmt.Sprintf("  - name: %s\n    adopt: {table: rows_%[1]s, columns: {id: id, order: [n], key: key, topic: topic, payload: payload}, delivered: delete}\n    sink: %q\n", name, broker.SinkURL())
	}
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	check(t, os.WriteFile(file, []byte(config), 0o600))
	relay := start(t, "relay", "--config", file)
	for name, broker := range brokers {
		eventually(t, "the rows for "+name+" are deleted", func() bool {
			var n int
			check(t, conn.QueryRow(t.Context(), "select count(*) from rows_"+name).Scan(&n))
			return n == 0
		})
		check(t, broker.Finish(t.Context()))
		next := map[string]int{}
		for k := range keys {
			next[fmt.Sprint("the key ", k)] = k
		}
		check(t, broker.Read(t.Context(), func(a readback.Arrival) {
			if n := next[a.Key]; a.ID != fmt.Sprint("row ü/", n) || string(a.Payload) != fmt.Sprintf(`{"n": %d}`, n) {
				t.Errorf("%s: %q of %q with %s arrives, want row %d", name, a.ID, a.Key, a.Payload, n)
			}
			next[a.Key] += keys
		}))
		for k := range keys {
			if n := next[fmt.Sprint("the key ", k)]; n != k+keys*each {
				t.Errorf("%s: key %d ends before row %d", name, k, n)
			}
		}
		check(t, broker.Remove(t.Context()))
	}
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 || strings.Contains(o.stderr, awstest.SecretKey) {
		t.Errorf("the relay ended with %d: %s", o.code, o.stderr)
	}
}
