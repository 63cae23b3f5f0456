package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 4 && os.Args[1] == natsCommand:
		fmt.Fprintln(os.Stderr, serveNATS(os.Args[2], os.Args[3]))
		os.Exit(1)
	case len(os.Args) == 3 && os.Args[1] == killedWriterCommand:
		fmt.Fprintln(os.Stderr, writeUntilKilled(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(command())
}

// Exit codes.
const (
	exitViolated = 1
	exitBroken   = 2
)

func command() int {
	cfg := config{progress: os.Stderr}
	flag.StringVar(&cfg.binary, "penstock", "", "the `program` to test (default: built from this checkout)")
	flag.DurationVar(&cfg.duration, "duration", 10*time.Minute, "how long things go wrong")
	flag.Uint64Var(&cfg.seed, "seed", 0, "of everything that is drawn (default: a random one)")
	flag.IntVar(&cfg.rate, "rate", 300, "messages per second")
	flag.BoolVar(&cfg.poison, "poison", true, "publish messages that a broker refuses")
	flag.BoolVar(&cfg.failover, "failover", false, "kill the primary once and promote its synchronous standby, instead of all other faults, of which one loses WAL")
	flag.StringVar(&cfg.profile, "profile", "postgres", "how the database is used: postgres or portable")
	flag.StringVar(&cfg.store, "store", storePostgres, "postgres, mysql (MariaDB), sqlite or citus (plain tables)")
	flag.StringVar(&cfg.engine, "engine", "rocksdb", "of the tables in MariaDB: rocksdb or innodb")
	keep := flag.Bool("keep", false, "keep the logs in any case")
	flag.Parse()
	if flag.NArg() > 0 || cfg.duration <= 0 || cfg.rate < 1 || cfg.rate > 10_000 || cfg.profile != "postgres" && cfg.profile != portable ||
		cfg.store != storePostgres && cfg.store != storeMySQL && cfg.store != storeSQLite && cfg.store != storeCitus || cfg.store != storePostgres && cfg.failover {
		fmt.Fprintln(os.Stderr, "chaos: no arguments, a positive -duration, a -rate of 1 to 10000, a -profile that is postgres or portable, a -store that is postgres, mysql, sqlite or citus, -failover of postgres only")
		return exitBroken
	}
	if cfg.store == storeCitus {
		cfg.profile, routes = portable, routes[:1] // a distributed outbox has one subscription
	}
	if cfg.seed == 0 {
		cfg.seed = rand.Uint64N(1 << 32)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	violated, err := chaosIn(ctx, cfg, *keep)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "chaos: seed %d: %v\n", cfg.seed, err)
		return exitBroken
	case violated:
		return exitViolated
	}
	return 0
}

// chaosIn runs in a folder that holds every log and is removed unless something
// went wrong.
func chaosIn(ctx context.Context, cfg config, keep bool) (violated bool, err error) {
	if cfg.dir, err = os.MkdirTemp("", "penstock-chaos-"); err != nil {
		return false, err
	}
	// PostgreSQL's user reads nothing here, but people do.
	if err := os.Chmod(cfg.dir, 0o755); err != nil {
		return false, err
	}
	defer func() {
		if keep || violated || err != nil {
			fmt.Fprintln(os.Stderr, "chaos: the logs are in", cfg.dir)
			return
		}
		err = os.RemoveAll(cfg.dir)
	}()
	if cfg.binary == "" {
		if cfg.binary, err = build(ctx, cfg.dir); err != nil {
			return false, err
		}
	}
	if cfg.binary, err = filepath.Abs(cfg.binary); err != nil {
		return false, err
	}
	log, err := os.Create(filepath.Join(cfg.dir, "chaos.log"))
	if err != nil {
		return false, err
	}
	defer log.Close()
	fmt.Fprintf(os.Stderr, "chaos: seed %d, %s\n", cfg.seed, cfg.duration)
	sum, verdict, err := run(ctx, cfg, log)
	if err != nil {
		return false, err
	}
	violated = len(verdict.Violations) > 0
	if violated {
		sum.Logs = cfg.dir
		fmt.Fprintf(os.Stderr, "\nchaos: seed %d: %d violations\n", cfg.seed, len(verdict.Violations))
	}
	return violated, sum.write(os.Stdout)
}

func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "penstock")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/penstock/penstock/cmd/penstock")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building penstock: %w", err)
	}
	return binary, nil
}
