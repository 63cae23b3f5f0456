package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/terminal"
)

// served is a log that notes the address of the metrics.
type served struct{ url chan string }

var metricsURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`)

func (s served) Write(p []byte) (int, error) {
	if url := metricsURL.Find(p); url != nil {
		s.url <- string(url)
	}
	return len(p), nil
}

// The exporter, a relay and a worker serve metrics at the address in their log until they end.
func TestVerbsThatServeMetrics(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(3)...)
		d.relay("orders", "billing", deliver)
		d.must("queue", "create", "mails")
		for args, series := range map[string]string{
			"exporter --metrics-listen 127.0.0.1:0":                                      `penstock_subscription_settled_messages_total{outbox="orders",subscription="billing"} 3`,
			"relay --outbox orders --sink discard --metrics-listen 127.0.0.1:0":          `penstock_subscription_backlog_messages{outbox="orders",subscription="billing"} 0`,
			"work mails --exec true --metrics-listen 127.0.0.1:0 --metrics-groups 3":     `penstock_queue_groups_capped{queue="mails"} 0`,
			"relay --outbox orders --sink queue:mails --metrics-listen 127.0.0.1:0":      `penstock_queue_paused{queue="mails"} 0`,
			"work mails --exec true --metrics-listen 127.0.0.1:0 --log-format json":      `penstock_worker_claimed_jobs_total{queue="mails"} `,
			"exporter --metrics-listen 127.0.0.1:0 --metrics-groups 2 --log-format json": `penstock_queue_groups_capped{queue="mails"} 0`,
		} {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			log := served{make(chan string, 1)}
			ended := make(chan int, 1)
			go func() { ended <- runWith(ctx, d.app(strings.NewReader(""), io.Discard, log), strings.Fields(args)) }()
			var url string
			select {
			case url = <-log.url:
			case <-ended:
				t.Fatalf("%s ends", args)
			case <-ctx.Done():
				t.Fatalf("%s serves nothing", args)
			}
			answer, err := http.Get(url)
			if err != nil {
				t.Fatalf("%s: %v", args, err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if !bytes.Contains(text, []byte("\n"+series)) {
				t.Errorf("%s: %s is not in\n%s", args, series, text)
			}
			stop()
			<-ended
			if _, err := http.Get(url); err == nil {
				t.Errorf("%s has ended, and still answers", args)
			}
		}
		for args, want := range map[string]string{
			"exporter --metrics-listen 9464":                                      `--metrics-listen is "9464": write an address and a port`,
			"relay --outbox orders --sink discard --metrics-groups -1":            "--metrics-groups is -1: use 0 to 1000",
			"work mails --exec true --metrics-listen localhost --log-level error": `--metrics-listen is "localhost"`,
		} {
			d.cli(strings.Fields(args)...).wants(t, terminal.ExitUsage, want)
		}
	})
}
