package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestChurn(t *testing.T) {
	db := onPostgres(t, "discard")
	r, err := Churn(t.Context(), ChurnConfig{
		Setup: db, Pin: true,
		Duration: 2 * time.Second, Batch: 100, Margin: 200 * time.Millisecond, Late: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.AdoptedOverByHand <= 0 || r.OutboxOverByHand <= 0 {
		t.Errorf("got %+v", r)
	}
	for who, c := range map[string]ChurnCurve{"by hand": r.ByHand, "adopted": r.Adopted, "outbox": r.Outbox} {
		if c.Inserted != c.Consumed+c.Left || c.Consumed == 0 || c.RowsPerSecond <= 0 || c.SizePeak == 0 || len(c.Intervals) != 20 {
			t.Errorf("%s: got %+v", who, c)
		}
		if (c.Flatness > 0) != (c.FirstMeanMS > 0 && c.LastMeanMS > 0) || c.FirstP50MS > c.FirstP99MS || c.LastP50MS > c.LastP99MS {
			t.Errorf("%s: got %+v", who, c)
		}
		// The published loop never delivers the late row.
		if c.Late == nil || c.Late.CommittedAt < 1 || c.Late.Delivered != (who != "by hand") {
			t.Errorf("%s: the late row %+v", who, c.Late)
		}
		if left := int64(0); who != "by hand" && c.Left != left {
			t.Errorf("%s: %d rows are left", who, c.Left)
		}
	}
	checkOutboxesGone(t, db)
}

func TestChurnInterrupted(t *testing.T) {
	db := onPostgres(t, "discard")
	ctx, cancel := context.WithCancel(t.Context())
	db.Progress = func(text string) {
		if strings.Contains(text, "inserting") {
			cancel()
		}
	}
	if _, err := Churn(ctx, ChurnConfig{Setup: db, Duration: time.Minute, Batch: 10, Margin: time.Millisecond}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	checkOutboxesGone(t, db)
}

// A run whose time is up before its first turn has ended also has a result. Turns before that, while the margin fills, are in no
// figure.
func TestChurnOfASlowTurn(t *testing.T) {
	db := onPostgres(t, "discard")
	var before int64
	db.Progress = func(text string) {
		if !strings.HasPrefix(text, "inserting") {
			return
		}
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(t.Context())
		table := pgx.Identifier{db.Schema, db.Name + "_churn_by_hand"}.Sanitize()
		if _, err := conn.Exec(t.Context(), `create function public.slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.5); return null; end';
			create trigger slow after insert on `+table+` for each statement execute function public.slow()`); err != nil {
			t.Error(err)
		}
		if err := conn.QueryRow(t.Context(), "select last_value from "+pgx.Identifier{db.Schema, db.Name + "_churn_by_hand_id_seq"}.Sanitize()).Scan(&before); err != nil {
			t.Error(err)
		}
	}
	r, err := Churn(t.Context(), ChurnConfig{Setup: db, Duration: 400 * time.Millisecond, Batch: 10, Margin: time.Millisecond})
	if err != nil || before < 20 || r.ByHand.Inserted != before+10 || r.ByHand.RowsPerSecond != 0 {
		t.Errorf("%d rows before the measuring, then %+v, %v", before, r, err)
	}
}
