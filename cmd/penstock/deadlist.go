package main

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

func (a *app) deadListCommand() *cobra.Command {
	var (
		f      deadFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list OUTBOX",
		Short: "List dead letters with their last errors",
		Long: `List the dead letters of a subscription, in order of seq. Those that were sent
back and have not arrived yet are not among them.

` + deadSelectorsHelp + `

  attempts  how often it was sent
  age       since when it is dead
  held      later messages of its key wait until it is retried or discarded

--json prints one object per line, with all errors that were kept but without
the payload: show has it.`,
		Example: `  penstock dead list orders
  penstock dead list orders --subscription billing --error 'no such queue' --newer-than 1h
  penstock dead list orders --json | jq -r .error | sort | uniq -c | sort -rn`,
		Args: exactly("OUTBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			store, subscription, err := a.openSubscription(ctx, args[0], f.subscription)
			if err != nil {
				return err
			}
			defer store.Close()
			q := f.query(args[0], subscription, cmd.Flags())
			if asJSON {
				lines := json.NewEncoder(a.stdout)
				return eachPage(ctx, store, q, f.limit, func(page []penstock.DeadLetter) error {
					for i := range page {
						if err := lines.Encode(deadJSON(&page[i])); err != nil {
							return err
						}
					}
					return nil
				})
			}
			list := newTable(a.stdout, column{title: "SEQ", right: true}, column{"ID", 40, false}, column{"KEY", 24, false}, column{"TOPIC", 24, false},
				column{title: "ATTEMPTS", right: true}, column{title: "AGE"}, column{title: "HELD"}, column{"ERROR", 64, false})
			listed := 0
			now := time.Now()
			err = eachPage(ctx, store, q, f.limit, func(page []penstock.DeadLetter) error {
				for i := range page {
					d := &page[i]
					if err := list.row(fmt.Sprint(d.Message.Seq), d.Message.ID, d.Message.Key, d.Message.Topic,
						fmt.Sprint(attempts(d)), since(d.At, now), yesNo(d.Held), d.Err()); err != nil {
						return err
					}
				}
				listed += len(page)
				return nil
			})
			if err != nil {
				return err
			}
			if listed == 0 {
				fmt.Fprintf(a.stdout, "0 dead letters of %s%s.\n", ofSubscription(args[0], subscription), map[bool]string{true: " match"}[f.narrowed])
				return nil
			}
			return list.flush()
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them, which is what it does anyway")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON line per dead letter, without payloads")
	return cmd
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// deadLetterJSON is a dead letter for programs.
type deadLetterJSON struct {
	Seq          int64              `json:"seq"`
	ID           string             `json:"id"`
	Key          string             `json:"key"`
	Topic        string             `json:"topic"`
	Headers      map[string]string  `json:"headers,omitempty"`
	PayloadBytes int                `json:"payload_bytes"`
	CreatedAt    time.Time          `json:"created_at"`
	DiedAt       time.Time          `json:"died_at"`
	Attempts     int                `json:"attempts"`
	Held         bool               `json:"held"`
	Error        string             `json:"error"`
	Failures     []penstock.Failure `json:"failures"`

	// One of them, and only where the payload was asked for.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

func deadJSON(d *penstock.DeadLetter) *deadLetterJSON {
	failures := d.Failures
	if failures == nil {
		failures = []penstock.Failure{} // [] rather than null
	}
	return &deadLetterJSON{
		Seq: d.Message.Seq, ID: d.Message.ID, Key: d.Message.Key, Topic: d.Message.Topic, Headers: d.Message.Headers,
		PayloadBytes: len(d.Message.Payload), CreatedAt: d.Message.CreatedAt.UTC(), DiedAt: d.At.UTC(), Attempts: attempts(d),
		Held: d.Held, Error: d.Err(), Failures: failures,
	}
}

// withPayload adds the payload the way penstock publish reads it.
func (j *deadLetterJSON) withPayload(payload []byte) *deadLetterJSON {
	if utf8.Valid(payload) {
		text := string(payload)
		j.Payload = &text
	} else {
		j.PayloadBase64 = payload
	}
	return j
}
