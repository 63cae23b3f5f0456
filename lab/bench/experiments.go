package main

import (
	"context"

	"github.com/penstock/penstock/lab/measure"
)

// experiment is a verb of bench.
type experiment struct {
	name, short, long, example string
	new                        func() run
	brokers                    bool   // takes any sink; else it needs a database with queues
	sink                       string // the default of --sink; no such flag without
	portable, mysql            bool   // of those that need a database: other than PostgreSQL
	logLevel                   string // unless --log-level is given; default warn

	all, quick string     // its flags in `bench all`, and with --quick
	ratios     []headline // of the report
}

// headline is a figure of an experiment's JSON that the report begins with.
type headline struct{ is, path, byHand, published string }

// run is one run of an experiment. Settings is a pointer to its configuration, whose fields are the flags.
type run struct {
	settings interface {
		Validate() error
		On(measure.Setup)
	}
	measure func(context.Context) (any, error)
}

// of is how an experiment begins: usual is its configuration unless flags say otherwise.
func of[C, R any, P interface {
	*C
	Validate() error
	On(measure.Setup)
}](usual C, measured func(context.Context, C) (R, error)) func() run {
	return func() run {
		cfg := usual
		return run{P(&cfg), func(ctx context.Context) (any, error) { return measured(ctx, cfg) }}
	}
}

const ofBroker = "of the broker, fed from memory"

var experiments = []experiment{
	{
		name: "relay", short: "Measure the relay between a database and a broker", new: of(measure.DefaultRelay, measure.Relay), brokers: true, sink: "embedded",
		long: `Measure, in one run and on the same messages:

  read_ceiling    how fast the backlog can be fetched, sent nowhere
  broker_ceiling  how fast the broker confirms the same messages from memory
  relay           a relay that drains the backlog, from its start until the
                  broker has confirmed the last message
  ratio           relay / broker_ceiling; ratio_of_lower_ceiling is that over the
                  lower of the two: some brokers take more than a database gives
  latency_ms      from the commit's answer to a consumer of the broker, at a
                  steady rate of single-message transactions
  cpu, memory     of this process while the relay drains

--pin holds a snapshot from before the first message on, as a forgotten transaction
or a pg_dump does; with --repeat 10 the rates of the drains and the size of the outbox
show whether it stays flat. --delay has the database further away, over a proxy in
this process.`,
		example: `  bench relay
  bench relay --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  bench relay --database-url postgres://postgres@localhost/postgres --sink discard --messages 100000 --repeat 10 --pin`,
		quick: "--messages 30000 --latency-for 4s --idle-for 2s", ratios: []headline{{"the relay's rate, " + ofBroker, "ratio", "", ""}},
	},
	{
		name: "poison", short: "Measure what a key that is always refused costs the others", new: of(measure.DefaultPoison, measure.Poison), brokers: true, sink: "embedded",
		logLevel: "error", // that the sink refuses is expected here, as in the next two
		long: `Drain a backlog of many keys twice, once as it is and once with a key that the
sink refuses every time, and compare how fast the other keys get through:

  clean   messages/s of the healthy keys, without poison
  poison  the same while the poisoned key is refused, retried and parked
  ratio   poison / clean; near 1 means that the others do not notice

What is refused is refused before it reaches the broker; everything else goes
there. The clock runs from the relay's start until the broker has confirmed the
last message of the healthy keys. Pairs alternate which run comes first. Each
run has a new outbox and a new queue, and afterwards a consumer checks that
nothing healthy was lost or out of order: exit code 3 otherwise.`,
		example: `  bench poison
  bench poison --poisoned 100 --repeat 9 --json`,
		all: "--repeat 3", quick: "--messages 10000 --repeat 1",
		ratios: []headline{{"healthy keys next to one that is always refused, of the same without", "ratio", "", ""}},
	},
	{
		name: "park", short: "Measure how parked messages drain, and that memory stays flat", new: of(measure.DefaultPark, measure.Park), brokers: true, sink: "embedded",
		logLevel: "error",
		long: `Have a whole topic refused, so that all of its messages are parked while another
topic flows; then let the sink accept them:

  normal_per_second  when the relay drains the same messages from the outbox
  drain_per_second   when it drains them from the park: from the moment when the
                     sink accepts to the last confirm, the wait for the next attempt included
  ratio              drain / normal
  …_use              peaks of this process in all three phases (an embedded broker included):
                     parking must not grow with what is parked
  size_…             of the outbox with its park

Afterwards a consumer reads the broker and checks that the parked messages came
in order of each key, and none was lost: exit code 3 otherwise. Where no consumer can
read the sink, its confirms are checked.

What is parked waits for its next attempt for up to --retry-max. In this
benchmark that is short, as the wait is not what it measures.`,
		example: `  bench park
  bench park --messages 10000 --keys 10000 --json`,
		quick: "--messages 10000 --keys 200", ratios: []headline{{"parked messages drain, of a normal drain", "ratio", "", ""}},
	},
	{
		name: "outage", short: "Measure producers and relay while the broker is dead, and after", new: of(measure.DefaultOutage, measure.Outage), brokers: true, sink: "embedded",
		logLevel: "error",
		long: `Let producers commit at a steady rate, one message per transaction, while the
broker is up, then dead, then up again:

  before_…, outage_…  how long a commit takes a producer, with the broker up and while
                      it is dead: an outbox exists so that there is no difference
  attempts_spent      by messages that met the outage: zero, an outage is not theirs
  drain_per_second    once the broker is back, from the first confirm until
                      as many are confirmed as were committed when it came back
  ceiling_per_second  the same messages from memory, the mean of before and after
  ratio               drain / ceiling

The broker's connections go through a proxy in this process, which cuts them and
refuses new ones; ceilings are measured through it, too. It takes amqp:// and
nats:// with one host and no TLS. With embedded, stdout and discard, which have no
connections, the sink answers that it is unavailable.

Producers stop when the broker is back. Afterwards a consumer reads the broker and
checks that nothing was lost and each key came in order: exit code 3 otherwise.

On PostgreSQL each writer has a connection, unless --database-url sets
pool_max_conns. If arrived_per_second is below --rate, the writers were all
busy: give more of them.`,
		example: `  bench outage --before 5s --outage 10s
  bench outage --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/`,
		quick: "--before 2s --outage 5s --ceiling-of 10000", ratios: []headline{{"the backlog of an outage drains, " + ofBroker, "ratio", "", ""}},
	},
	{
		name: "webhook", short: "Measure the relay against an endpoint that takes its time", new: of(measure.DefaultWebhook, measure.Webhook), brokers: true,
		logLevel: "error", // the sink warns of an endpoint without TLS
		long: `Measure, in one run and on the same messages, how many requests per second an
endpoint of this process answers that takes --delay for each:

  client  net/http posts from memory, --keys requests at a time
  relay   a relay that drains a backlog, in order within each of --keys keys
  ratio   relay / client

The endpoint shares the machine with both; …_cpu says how busy it was. It also notes
what came: a message that is lost or out of order means exit code 3.`,
		example: `  bench webhook
  bench webhook --database-url postgres://postgres@localhost/postgres --keys 200 --delay 20ms --repeat 5 --json`,
		all: "--repeat 3", quick: "--messages 10000", ratios: []headline{{"requests, of net/http from memory", "ratio", "", ""}},
	},
	{
		name: "fifo-lifo", short: "Measure whether a queue slows down as it is used", new: of(measure.DefaultFifoLifo, measure.FifoLifo), portable: true, mysql: true,
		long: `Let ten workers compete for one job per transaction while one enqueuer goes on,
first on a queue of Penstock's, then on the hand-written table and statements of
"Deletes and MVCC in YugabyteDB" (Franck Pachot), each for --duration from a
fresh preload:

  intervals        rate and latency of whole transactions, and the size of the tables with
                   indexes. With --pin, segments that are truncated show that space comes
                   back all the same
  flatness         the p99 of the last tenth of the run over that of the first;
                   the run's first second is left out
  cpu              cores that were busy on average: of this client, of PostgreSQL if
                   it runs on this machine, and in all. A client that takes what the
                   server leaves is what bounds the figure
  ratio            Penstock's average jobs/s over the hand-written queue's;
                   ratio_at_start is that of the first intervals, ratio_to_start
                   Penstock's average over the other's first interval
  baseline         the figures of the hand-written queue

One runs after the other, and not in turns, so that each runs without a pause, as
published: a pause would give vacuum time to clear up, and the other's pages would
push its own out of memory. The snapshot of --pin is taken before the first job
and covers both.

A run whose queue is empty ends there (drained): polling an empty queue would
measure nothing. A poll that finds nothing while there are jobs (others have
locked them) is counted apart and is in no figure. Afterwards jobs in, out and
left must agree and none may have come twice: exit code 3 otherwise.

--mode call is one autocommitted call of dequeue_NAME, --mode tx is begin,
dequeue_NAME, commit. The hand-written transaction has four round trips: begin, select … for
update skip locked limit 1, delete, commit. With --profile portable, and on MariaDB
and MySQL, a job is a claim and an ack.

On MariaDB with MyRocks (mysql://…?engine=rocksdb) it also shows what RocksDB did for
a dequeue: next and seek, as ROCKSDB_NUMBER_DB_NEXT and _SEEK count them, and the
steps over what was deleted, which these do not count.`,
		example: `  bench fifo-lifo --database-url postgres://postgres@localhost/postgres --pin
  bench fifo-lifo --order lifo --rate 0 --pin --plot lifo.svg
  bench fifo-lifo --arrivals=false --preload 1000000 --duration 2m --json
  bench fifo-lifo --database-url 'mysql://root@localhost/?engine=rocksdb'
  bench fifo-lifo --order lifo --dequeue-rate 100 --duration 1h --preload 6000  # as published`,
		all: "--pin", quick: "--pin --preload 200000 --duration 6s", ratios: []headline{
			{"p99 of the last tenth over the first, snapshot pinned", "flatness", "baseline.flatness", ""}, {"jobs/s, of the hand-written queue's", "ratio", "", ""}},
	},
	{
		name: "tombstones", short: "Measure how the next event is found behind many that are gone", new: of(measure.DefaultTombstones, measure.Tombstones),
		long: `Consume the first half of a million events, as in "The Curious Case of the
Ever-Increasing Tombstones" (YugabyteDB, 2022), and fetch the next one:

  naive     select … order by ts limit 1
  last_ts   select … where ts > LAST order by ts limit 1, with LAST kept by hand
  penstock  dequeue of the same events as jobs, rolled back each time

--pin adds the same with a REPEATABLE READ snapshot that was open before the
deletions. For each it shows the time of one fetch, the median of --fetches, the
pages it asked for, and the ratio to the same fetch from a table and a queue of
which nothing was deleted; the two fetch in turns.

Vacuum stays away from the events: what is measured is how it is until it comes.
On MyRocks, bench fifo-lifo and bench churn show how many tombstones are met.`,
		example: `  bench tombstones --database-url postgres://postgres@localhost/postgres --pin
  bench tombstones --events 100000 --json`,
		all: "--pin", quick: "--pin --events 100000 --fetches 50",
		ratios: []headline{{"the next event behind many that are gone, of a fresh one's time", "worst_ratio", "cases.0.naive.ratio", ""}},
	},
	{
		name: "queue", short: "Measure how many messages and jobs go in, and jobs out", new: of(measure.DefaultQueue, measure.Queue),
		long: `Measure jobs per second, each combination of operation, batch size and number of
workers on a new queue and, in the same run, on a hand-written table with a primary
key:

  publish   plain INSERT into an outbox      by hand: the same into a table with the
  insert    plain INSERT into the queue      same columns and defaults, in turns
  enqueue   _NAME.enqueue, enqueue_many
  business  pgbench's TPC-B-like transaction without the message, and with an INSERT of
            with one message published       it into a plain table, in turns
  dequeue   dequeue_NAME, dequeue of more    by hand: DELETE … USING (SELECT …
  claim     claim, or ack_claim of more,     FOR UPDATE SKIP LOCKED LIMIT n) … RETURNING
            then ack of all                  with leases: UPDATE … WHERE id IN (SELECT …
                                             FOR UPDATE SKIP LOCKED LIMIT n) RETURNING,
                                             then DELETE
  work      work.Run with its defaults and   by hand: four connections, each
            a handler that does nothing      DELETE … WHERE id IN (SELECT …
                                             LIMIT 100) RETURNING in a loop; with
                                             leases UPDATE and DELETE

A cell ends after --jobs or --longest. Every call is a transaction; of
single jobs there is also mode tx, within begin and commit, and of claim mode carried:
each claim ends the jobs of the last one, in one call. Of work there is one cell,
which is of Go programs, and a backlog of --jobs that they drain, five times in turns. The message of the
business is one more round trip (tx), or goes with the commit (pipelined); jobs/s are
transactions. What takes turns does so every 200 ms, ten times at least, and the
ratio is the median of theirs. Every other cell begins with the hand-written table. Jobs in, out and left must agree: exit code 3
otherwise.`,
		example: `  bench queue --database-url postgres://postgres@localhost/postgres
  bench queue --ops dequeue,claim --batches 100 --workers 10 --json
  bench queue --ops publish,enqueue,business --batches 1 --workers 8 --longest 20s`,
		all: "--batches 1,10,100 --workers 1,10", quick: "--batches 1,100 --workers 10 --jobs 8000 --longest 500ms",
	},
	{
		name: "steady", short: "Measure from commit to handler, at a steady rate", new: of(measure.DefaultSteady, measure.Steady),
		long: `Enqueue one job per transaction at a steady rate, and handle them with work.Run. Latency
is from the commit's answer to the handler, without the first tenth of the run, and CPU
that of the whole machine, whatever runs on it: producer, database, workers, and
everybody else. Before that the same is measured with the hand-written loop (by_hand):
one connection that takes up to a hundred jobs at a time, and pauses for work.Run's
shortest pause when there are none. Producer and workers share one Go processor
(GOMAXPROCS); they need a third.`,
		example: `  bench steady --database-url postgres://postgres@localhost/postgres --rate 2000 --duration 50s`,
		quick:   "--rate 1000 --duration 6s", ratios: []headline{{"ms from commit to handler, p99", "latency_ms.p99", "by_hand.latency_ms.p99", ""}},
	},
	{
		name: "processor", short: "Climb a published ladder of outbox processors, then adopt its table", new: of(measure.DefaultProcessor, measure.Processor),
		sink: "amqp://guest:guest@localhost:5672/",
		long: `Climb the ladder of "Scaling the Outbox Pattern" (Milan Jovanović, 2024) on its
table outbox_messages, PostgreSQL to RabbitMQ, by hand and with the broker's own
client; each rung keeps what the one before it improved:

  baseline            SELECT *, no index, each publish awaited, one UPDATE a row
  covering index      only the columns needed, from the index alone
  concurrent publish  all messages of a batch, then all confirms
  batch update        one UPDATE per batch
  5 workers           FOR UPDATE SKIP LOCKED, a connection each
  batched publish     many messages in one write to the socket

then, in the same run:

  ceiling             the broker confirms the same messages from memory
  adopted             Penstock on the same table, with the index of the last rung
  outbox              Penstock on its outbox

Confirms are on and messages persistent everywhere. Each begins with --rows fresh
rows, vacuumed and analysed, and an empty queue, and ends when all are processed or
after --duration. Milliseconds are the mean per batch of one worker; the update's
include the commit. messages/s count to the last row that is marked as processed,
those of the ceiling to the last confirm. The baseline reads the whole table for
each batch: its figure depends on --rows (2 million as published).

Afterwards the broker's own client reads every queue: a message that was marked and
is not there means exit code 3.`,
		example: `  bench processor --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  bench processor --rows 2000000 --duration 1m  # as published`,
		quick: "--rows 20000 --duration 2s", ratios: []headline{
			{"the adopted table, times the published baseline by hand", "ratios.factor_over_baseline", "ratios.best_rung_over_baseline", "24"},
			{"the adopted table, " + ofBroker, "ratios.adopted_over_ceiling", "ratios.best_rung_over_ceiling", ""}},
	},
	{
		name: "churn", short: "Insert and consume for long, and see whether it stays fast", new: of(measure.DefaultChurn, measure.Churn), portable: true, mysql: true,
		long: `Run the loop of "YugabyteDB avoids bloat with the outbox pattern" (Franck Pachot,
2024) on its table outbox(ts, id, message): insert 1,000 rows, consume the oldest
1,000, again and again for --duration. Three take turns, so that each has the same
time and the same machine:

  by_hand  the published DELETE of what is newer than a low-water mark, which is the
           newest timestamp deleted before, less --margin
  adopted  Penstock on the same table, with the same margin: fetched, then settled
  outbox   Penstock on its outbox

  rows_per_second  consumed, in a contender's own turns
  …_ms             latency of consuming a batch
  flatness         the mean of the last minute over that of the first (of a quarter of the
                   run if that is shorter). Also of p50 and p99
  size_…           of the table with indexes and of what Penstock keeps about it

The three take turns for as long as the margin before the measuring begins: each reads
again what was consumed within the margin, which is nothing at first.

Each has a late row as well: inserted at the start, in a transaction that commits
after --late. The published loop never finds it if that is longer than the margin.
While such a transaction is open, vacuum is held back for everybody, as by --pin.

Penstock must deliver every row once, the late one too: exit code 3 otherwise. With
--profile portable, and on MariaDB and MySQL, no table is adopted. On MariaDB with MyRocks
(mysql://…?engine=rocksdb) it also shows what RocksDB did for a row: next, seek, and
the steps over what was deleted.`,
		example: `  bench churn --database-url postgres://postgres@localhost/postgres --duration 10m --pin
  bench churn --duration 10m --late 5m --pin --plot churn.svg --json`,
		all: "--duration 5m --pin", quick: "--duration 12s --margin 1s --pin",
		ratios: []headline{{"a batch at the end over one at the start, snapshot pinned, adopted", "adopted.flatness", "by_hand.flatness", ""}},
	},
	{
		name: "buffering", short: "Publish one by one through the buffer, and by single and bulk statements", new: of(measure.DefaultBuffering, measure.Buffering),
		long: `Publish in one transaction: one INSERT each, through the buffer (docs/guides/buffering.md),
in one statement, and with COPY; then the same with each of --delays added to each round
trip, where one INSERT each has a fiftieth of the messages. "Write Buffering to
Reduce Raft Consensus Latency" (Franck Pachot, 2025) has 33 flushes for 100,000 rows
in 3.6 s.

Then callers without a transaction, each with one message at a time: committing by
themselves, on up to 64 connections (pool_max_conns in the URL), and through a writer
that shares commits; the same on a SQLite file in $TMPDIR.`,
		example: `  bench buffering --database-url postgres://postgres@localhost/postgres
  bench buffering --delays 10ms --callers 64 --json`,
		quick: "--publishes 8000 --delays 1ms --duration 500ms --callers 1,8,64", ratios: []headline{
			{"publishing one by one through the buffer, of one statement", "ratio_to_bulk", "", ""}, {"the same, times one INSERT each", "speedup_over_single", "", ""}},
	},
	{
		name: "yugabyte-simulator", short: "Run the published experiments on a simulator of YugabyteDB", new: of(measure.DefaultYugabyte, measure.Yugabyte),
		long: `Run the four published experiments about YugabyteDB on a simulator of it: PostgreSQL behind
a proxy that waits as YugabyteDB's documentation says. A statement that writes waits for a
Raft flush (--flush), one that reads for each entry of an index (--step), deleted ones too.
A snapshot is held for each run, so that what is deleted stays, as it does for 15 minutes there.
Figures are the simulator's, not YugabyteDB's.

  fifo, lifo   "Deletes and MVCC in YugabyteDB": 100 jobs a second, ten dequeuers, the published table by
               hand and then a queue on Penstock's plain tables
  churn        "YugabyteDB avoids bloat with the outbox pattern": 1,000 rows inserted, the
               oldest 1,000 consumed; by hand and an outbox on plain tables take turns
  tombstones   "The Curious Case of the Ever-Increasing Tombstones": the next of many events
               whose first half is consumed; a process that has just started has first_ms
  buffering    "Write Buffering to Reduce Raft Consensus Latency": flushes of one transaction

degradation is the median at the end over that at the beginning. Each run takes up to three minutes
with the defaults. It makes and drops a database, for which the role must be a superuser.`,
		example: `  bench yugabyte-simulator --database-url postgres://postgres@localhost/postgres
  bench yugabyte-simulator --runs fifo --duration 1h --plot fifo.svg`,
		quick: "--duration 12s --margin 2s --events 20000 --rows 200",
	},
}
