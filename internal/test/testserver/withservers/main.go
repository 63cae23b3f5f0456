// Withservers runs a command with the servers that tests need, and starts those that the
// environment does not name. It names them to the command in PENSTOCK_TEST_POSTGRES,
// PENSTOCK_TEST_RABBITMQ and, where it is installed, PENSTOCK_TEST_MARIADB. It ends them afterwards
// and exits with the command's status.
//
//	withservers go test ./...
//	withservers             start servers, print their URLs, run until interrupted
//	withservers -durable …  PostgreSQL waits for the disk at every commit, as in production
//	withservers -only postgres,mariadb …   these alone
//	withservers -pooled …   PostgreSQL behind a PgBouncer in transaction mode
//	withservers -only kafka …   an Apache Kafka of script/kafka-jars.sh, named in PENSTOCK_TEST_KAFKA
//	withservers -only redis     named in PENSTOCK_TEST_REDIS
//	withservers -only artemis   Artemis of PENSTOCK_TEST_ARTEMIS, named in PENSTOCK_TEST_AMQP1
//	withservers -only mariadb …  MariaDB with InnoDB and MyRocks
//	withservers -missing    print the packages it would need, by Debian's names, and the use of each
//	withservers -missing-extras  and those without which a few tests are skipped
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/test/testserver"
)

func main() {
	durable := flag.Bool("durable", false, "let PostgreSQL wait for the disk at every commit (fsync on)")
	only := flag.String("only", "", "start only these `servers`, separated by commas: postgres, rabbitmq, mariadb, redis, artemis, kafka")
	pooled := flag.Bool("pooled", false, "name a PgBouncer in transaction mode in front of PostgreSQL")
	missing := flag.Bool("missing", false, "print Debian's names of the packages that are needed and not installed, and exit")
	extras := flag.Bool("missing-extras", false, "print the names of those without which a few tests are skipped, and exit")
	flag.Parse()
	if *missing || *extras {
		find := testserver.Missing
		if *extras {
			find = testserver.MissingExtras
		}
		for _, m := range find() {
			fmt.Printf("%s\t%s\n", m.Package, m.Server)
		}
		return
	}
	var conf []string
	if *durable {
		conf = []string{"fsync = on", "full_page_writes = on"}
	}
	if *pooled { // which keeps sessions of each test's database for a while
		conf = append(conf, "max_connections = 600")
	}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

	wanted, err := chosen(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		os.Exit(2)
	}
	env, stop, err := start(wanted, *pooled, conf)
	if err == nil && flag.NArg() > 0 {
		env, stop, err = temporary(env, stop)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		os.Exit(1)
	}
	status := 0
	if flag.NArg() == 0 {
		for _, e := range env {
			fmt.Println("export", e)
		}
		<-signals
	} else if status, err = run(flag.Args(), env, signals); err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// usual servers are started if none are chosen. Few tests want the others.
var usual, others = []string{"postgres", "rabbitmq", "mariadb"}, []string{"redis", "artemis", "kafka"}

// chosen returns the servers that a list names, none for an empty one.
func chosen(list string) (names []string, err error) {
	if list == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(usual, name) && !slices.Contains(others, name) {
			return nil, fmt.Errorf("-only has %q: name some of %s, separated by commas", name, strings.Join(slices.Concat(usual, others), ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// start starts the servers that the environment does not name and returns the variables
// that name it.
func start(only []string, pooled bool, conf []string) (env []string, stop func() error, err error) {
	type server struct {
		env  string
		stop func() error
		err  error
	}
	var waiting []chan server
	launch := func(name, variable string, f func() (url string, stop func() error, err error)) {
		if os.Getenv(variable) != "" || !slices.Contains(only, name) && (len(only) > 0 || !slices.Contains(usual, name)) {
			return
		}
		c := make(chan server, 1)
		waiting = append(waiting, c)
		go func() {
			url, stop, err := f()
			c <- server{variable + "=" + url, stop, err}
		}()
	}
	launch("postgres", testserver.EnvPostgres, func() (string, func() error, error) {
		p, err := testserver.NewPostgres(conf...)
		if err != nil || !pooled {
			return started(p, err)
		}
		b, err := testserver.NewPgBouncer(p.URL, "server_idle_timeout = 2")
		if err != nil {
			return "", nil, errors.Join(err, p.Close())
		}
		// pgx's own connections prepare statements otherwise, which another session of the pooler's may have.
		return b.URL + "&default_query_exec_mode=exec", func() error { return errors.Join(b.Close(), p.Close()) }, nil
	})
	launch("rabbitmq", testserver.EnvRabbitMQ, func() (string, func() error, error) { return started(testserver.NewRabbitMQ()) })
	launch("mariadb", testserver.EnvMariaDB, func() (string, func() error, error) { return started(testserver.NewMariaDB()) })
	launch("redis", "PENSTOCK_TEST_REDIS", func() (string, func() error, error) { return started(testserver.NewRedis()) })
	launch("artemis", "PENSTOCK_TEST_AMQP1", func() (string, func() error, error) {
		return started(testserver.NewArtemis("penstock", "penstock", nil))
	})
	launch("kafka", testserver.EnvKafka, func() (string, func() error, error) {
		return started(testserver.NewKafka(testserver.KafkaOptions{}))
	})

	var closers []func() error
	for _, c := range waiting {
		s := <-c
		missing := new(testserver.MissingError)
		switch {
		case errors.As(s.err, &missing) && missing.URLVar == testserver.EnvMariaDB && len(only) == 0: // few tests want it
		case s.err != nil:
			err = errors.Join(err, s.err)
		default:
			env, closers = append(env, s.env), append(closers, s.stop)
		}
	}
	stop = func() error {
		var err error
		for _, close := range closers {
			err = errors.Join(err, close())
		}
		return err
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return env, stop, nil
}

// started is where the server is and what ends it, or why there is none.
func started[S interface{ Where() (string, func() error) }](s S, err error) (url string, stop func() error, _ error) {
	if err == nil {
		url, stop = s.Where()
	}
	return url, stop, err
}

// temporary puts the command's temporary files, including databases in files, next to the servers' data.
func temporary(env []string, stop func() error) ([]string, func() error, error) {
	data := os.Getenv("PENSTOCK_TEST_DATA")
	if data == "" || os.Getenv("TMPDIR") != "" {
		return env, stop, nil
	}
	dir, err := os.MkdirTemp(data, "tmp")
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	if err := os.Chmod(dir, 0o711); err != nil { // servers that run as another user have their data in there
		return nil, nil, errors.Join(err, stop())
	}
	return append(env, "TMPDIR="+dir, "GOTMPDIR="+cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir())),
		func() error { return errors.Join(stop(), os.RemoveAll(dir)) }, nil
}

// run runs the command in a separate process group and hands signals on to the whole group, so that
// the test programs under `go test` end too. A second signal kills. It returns the status to exit
// with.
func run(args, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for interrupted := false; ; interrupted = true {
		select {
		case <-done:
			ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			return ws.ExitStatus(), nil
		case sig := <-signals:
			if interrupted {
				sig = syscall.SIGKILL
			}
			_ = syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal)) // it may have just ended
		}
	}
}
