package postgres_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/store/postgres"
)

// Whatever is wrong has a stable SQLSTATE, and a hint.
func TestBadJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.create_queue('limited')")
	f.Exec("select penstock.set_queue('limited', max_running => 1)")
	long := strings.Repeat("x", 1025)
	const large = "jsonb_build_object('a', repeat('h', 65536))"
	for _, c := range []struct{ code, sql string }{
		{"42P01", "penstock.enqueue('none', 'x')"},
		{"42P01", "penstock.enqueue(null, 'x')"},
		{"42P01", "penstock.enqueue_many('none', '{x}')"},
		{"42P01", "penstock.dequeue('none')"},
		{"42P01", "penstock.claim('none')"},
		{"42P01", "penstock.claim('')"},
		{"42P01", "penstock.ack('none', 1)"},
		{"42P01", "penstock.ack_many('none', '{1}')"},
		{"42P01", "penstock.extend('none', 1, '1 s')"},
		{"42P01", "penstock.retry('none', 1)"},
		{"42P01", "penstock.dead_letter('none', 1)"},
		{"42P01", "penstock.cancel('none', '{1}')"},
		{"42P01", "penstock.pause_queue('none')"},
		{"42P01", "penstock.resume_queue('none')"},
		{"42P01", "penstock.set_queue('none', 1)"},
		{"42P01", "penstock.drop_queue('none')"},
		{"42P01", "penstock.schedule('none', 's', '@daily', 'x')"},
		{"42P01", "penstock.unschedule('none', 's')"},
		{"42P01", "penstock.pause_schedule('none', 's')"},
		{"42P01", "penstock.resume_schedule('none', 's')"},
		{"42P01", "penstock.run_schedule('none', 's')"},
		{"42P01", "penstock.schedules('none')"},
		{"42P01", "penstock.dead_jobs('none')"},
		{"42P01", "penstock.maintain_queue('none')"},
		{"42P01", "penstock.retry_dead_jobs('none', '{1}')"},
		{"42P01", "penstock.grant_worker('none', 'postgres')"},
		{"22023", "penstock.claim('q', -1)"},
		{"22023", "penstock.claim('q', 0)"},
		{"22023", "penstock.claim('q', null)"},
		{"22023", "penstock.claim('q', 10001)"},
		{"22023", "penstock.claim('q', 1, '0')"},
		{"22023", "penstock.claim('q', 1, '-1 s')"},
		{"22023", "penstock.claim('q', 1, null)"},
		{"23514", "penstock.claim('q', worker => repeat('w', 257))"},
		{"23514", "penstock.ack_claim('q', '{}', worker => repeat('w', 257))"},
		{"22023", "penstock.extend('q', 1, '0')"},
		{"22023", "penstock.extend_many('q', '{1}', '-1 s')"},
		{"22023", "penstock.enqueue_bytes('q', null)"},
		{"22023", "penstock.enqueue('q', 'x', 'k', not_before => 'infinity')"},
		{"22023", "penstock.enqueue_many('q', '{x,null}')"},
		{"22023", "penstock.enqueue_many('q', '{x}', keys => '{a,b}')"},
		{"23514", "penstock.enqueue('q', repeat('x', 67108865))"},
		{"23514", "penstock.enqueue('q', 'x', key => '" + long + "')"},
		{"23514", "penstock.enqueue('q', 'x', group_key => '" + long + "')"},
		{"23514", "penstock.enqueue('q', 'x', dedup_key => '" + long[:257] + "')"},
		{"23514", "penstock.enqueue('q', 'x', priority => 16)"},
		{"23514", "penstock.enqueue('q', 'x', priority => -17, not_before => 'infinity')"},
		{"23514", "penstock.enqueue('q', 'x', deadline => '-infinity')"},
		{"23514", "penstock.enqueue('q', 'x', headers => '[]')"},
		{"23514", "penstock.enqueue_many('q', '{x}', priorities => '{16}')"},
		{"23514", "penstock.enqueue_many('q', '{x,y}', priorities => '{0,65536}')"},
		{"23514", "penstock.enqueue_many('q', '{x}', keys => '{" + long + "}')"},
		{"23514", "penstock.enqueue_many('q', '{x}', group_keys => '{" + long + "}')"},
		{"23514", "penstock.enqueue('q', 'x', headers => " + large + ")"},
		{"23514", "penstock.enqueue('q', 'x', headers => " + large + ", dedup_key => 'd')"},
		{"23514", "penstock.enqueue('q', 'x', headers => " + large + ", not_before => now() + interval '1 hour')"},
		{"23514", "penstock.enqueue_many('q', '{x}', headers => array[" + large + "])"},
		{"23514", "penstock.schedule('q', 's', '@daily', 'x', headers => " + large + ")"},
		{"23514", "penstock.enqueue('q', 'x', kind => repeat('k', 101))"},
		{"23514", "penstock.enqueue('q', 'x', kind => e'a\\nb')"},
		{"23514", "penstock.enqueue('q', 'x', kind => e'a\\x7f', dedup_key => 'd')"},
		{"23514", "penstock.enqueue('q', 'x', kind => 'a', headers => '{\"penstock-kind\": \"b\"}')"},
		{"23514", "penstock.enqueue('q', 'x', headers => jsonb_build_object('penstock-kind', repeat('k', 101)))"},
		{"23514", "penstock.enqueue_many('q', '{x,y}', kinds => array['a', repeat('k', 101)])"},
		{"23514", "penstock.schedule('q', 's', '@daily', 'x', kind => repeat('k', 101))"},
		{"22023", "penstock.enqueue_many('q', '{x,y}', kinds => '{a}')"},
		{"22023", "penstock.enqueue_many('q', '{x,y}', kinds => '{a,b,c}')"},
		{"22023", "penstock.enqueue_many('q', '{x,y}', kinds => '{a,b}', headers => '{null}')"},
		{"PS001", "penstock.ack('q', 1)"},
		{"PS001", "penstock.ack('q', null)"},
		{"PS001", "penstock.extend('q', 1, '1 s')"},
		{"PS001", "penstock.retry('q', 1)"},
		{"PS001", "penstock.dead_letter('q', 1)"},
		{"22023", "penstock.enqueue('q', 'x', not_before => 'infinity')"},
		{"22023", "penstock.enqueue_many('q', '{x}', not_befores => '{infinity}')"},
		{"22023", "penstock.claim('q', lease => '200000 years')"},
		{"22023", "penstock.claim('q', lease => '1001 years')"},
		{"22023", "penstock.extend('q', 1, '200000 years')"},
		{"22023", "penstock.retry('q', 1, after => '200000 years')"},
		{"22023", "penstock.set_queue('q', dedup_window => '200000 years')"},
		{"22023", "penstock.set_retention('orders', '200000 years', null)"},
		{"22023", "penstock.set_retention('orders', '-1 s', null)"},
		{"22023", "penstock.set_retention('orders', null, -1)"},
		{"0A000", "penstock.dequeue('limited')"},
		{"22023", "penstock.set_queue('q', max_attempts => 0)"},
		{"22023", "penstock.set_queue('q', max_running => -1)"},
		{"22023", "penstock.set_queue('q', dedup_window => '0')"},
		{"42704", "penstock.unschedule('q', 'none')"},
		{"42704", "penstock.pause_schedule('q', 'none')"},
		{"42704", "penstock.resume_schedule('q', null)"},
		{"42704", "penstock.run_schedule('q', 'none')"},
		{"22023", "penstock.schedule('q', 's', 'nonsense', 'x')"},
		{"22023", "penstock.schedule('q', 's', '0 0 30 2 *', 'x')"},
		{"22023", "penstock.schedule('q', 's', '@daily', null)"},
		{"23514", "penstock.schedule('q', '', '@daily', 'x')"},
	} {
		f.wantError(c.code, "select "+c.sql)
	}
	f.wantText("0", "select count(*)::text from penstock.q")
}

func TestCronNext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	for _, c := range []struct{ cron, after, want string }{
		{"* * * * *", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"},
		{"* * * * *", "2026-03-01T10:00:59.999Z", "2026-03-01T10:01:00Z"},
		{"*/15 * * * *", "2026-03-01T10:46:00Z", "2026-03-01T11:00:00Z"},
		{"5/20 * * * *", "2026-03-01T10:46:00Z", "2026-03-01T11:05:00Z"},
		{"30 4 * * 1-5", "2026-03-06T04:30:00Z", "2026-03-09T04:30:00Z"}, // Friday to Monday
		{"30 4 * * mon,WED", "2026-03-09T05:00:00Z", "2026-03-11T04:30:00Z"},
		{"0 0 1 jan-mar/2 *", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"0 0 13 * 5", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"},     // the 13th or a Friday
		{"0 0 */2 * 5", "2026-03-07T00:00:00Z", "2026-03-13T00:00:00Z"},    // an odd day and a Friday
		{"59 23 * * 7", "2026-03-01T23:59:00Z", "2026-03-08T23:59:00Z"},    // 7 is Sunday
		{"0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},     //
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},     // 2100 has none
		{" @hourly ", "2026-12-31T23:30:00Z", "2027-01-01T00:00:00Z"},      //
		{"@weekly", "2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"},        //
		{"@yearly", "2026-03-01T00:00:00Z", "2027-01-01T00:00:00Z"},        //
		{"0 2 * * *", "2026-03-29T03:30:00+02:00", "2026-03-29T02:00:00Z"}, // UTC, wherever the caller is
	} {
		var got time.Time
		f.Must(f.Conn.QueryRow(f.Ctx, "select penstock._cron_next($1, $2::text::timestamptz)", c.cron, c.after).Scan(&got))
		if got.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%q after %s: got %s, want %s", c.cron, c.after, got.UTC(), c.want)
		}
	}
	zones, err := os.ReadFile("../../internal/cron/testdata/zones.txt")
	f.Must(err)
	for line := range strings.Lines(string(zones)) {
		cron, rest, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if after, times, _ := strings.Cut(rest, " | "); ok {
			for want := range strings.FieldsSeq(times) {
				var got time.Time
				f.Must(f.Conn.QueryRow(f.Ctx, "select penstock._cron_next($1, $2::text::timestamptz)", cron, after).Scan(&got))
				if got.UTC().Format(time.RFC3339) != want {
					t.Errorf("%q after %s: got %s, want %s", cron, after, got.UTC(), want)
				}
				after = want
			}
		}
	}
	for _, cron := range []string{"", "   ", "nonsense", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
		"* * * foo *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "1, * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "@every 5s", "@reboot",
		"TZ=Europe/Nowhere 0 4 * * *", "TZ=CEST 0 4 * * *", "TZ=Europe/Berlin", "TZ= 0 4 * * *", "0 4 * * * TZ=Europe/Berlin", "mon * * * *"} {
		_, err := f.Conn.Exec(f.Ctx, "select penstock._cron_next($1, now())", cron)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "22023" || pg.Hint == "" {
			t.Errorf("%q: got %v, want 22023 with a hint", cron, err)
			continue
		}
		if want := map[string]string{"   ": "needed, and it has 0", "* * * *": "needed, and it has 4", "* * * * * *": "needed, and it has 6", "60 * * * *": "'60' is not a valid minute",
			"* 24 * * *": "'24' is not a valid hour", "* * 0 * *": "'0' is not a valid day of month", "* * * foo *": "'foo' is not a valid month", "* * * * 8": "'8' is not a valid day of week"}[cron]; !strings.HasSuffix(pg.Message, want) {
			t.Errorf("%q: got %q, want it to end with %q", cron, pg.Message, want)
		}
	}
}
