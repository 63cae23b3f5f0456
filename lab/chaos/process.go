package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/test/testserver"
)

//go:embed config.yaml
var relayConfig string

// lease of the relays, as config.yaml has it.
const lease = 3 * time.Second

// process is one relay or worker with its own routes to everything.
type process struct {
	*testserver.Program
	name, kind             string
	postgres, rabbit, nats link
}

// links are its ways through proxies.
func (r *process) links() []link {
	return slices.DeleteFunc([]link{r.postgres, r.rabbit, r.nats}, func(l link) bool { return l.proxy == nil })
}

// alive is an error if it has ended unasked. It never should: what it
// cannot reach it waits for.
func (r *process) alive() error {
	if how, ended := r.Ended(); ended {
		return fmt.Errorf("%s ended by itself: %s\nend of its log:\n%s", r.name, how, r.LogTail(10))
	}
	return nil
}

// blast has everything that trouble with it disturbs, or with its ways to a broker.
func (r *process) blast(broker string) blast {
	return blast{Routes: routeNames(broker), Holder: r.name}
}

// startRelay starts one. Both have the same configuration, but for the proxies.
func (r *rig) startRelay(name string) error {
	p := &process{name: name, kind: "relay"}
	var errs [3]error
	p.postgres, errs[0] = r.databaseLink(name+"-postgres", r.database, p.blast(""))
	p.rabbit, errs[1] = r.link(name+"-rabbitmq", r.rabbit.URL, p.blast("rabbitmq"))
	p.nats, errs[2] = r.link(name+"-nats", r.nats.url, p.blast("nats"))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	config := filepath.Join(r.dir, "penstock.yaml")
	text := relayConfig
	if r.store == storeCitus { // which has one subscription, and both relays a part of it
		text = strings.Replace(text[:strings.Index(text, "\n  - name: to-nats\n")], "  - name: to-rabbitmq\n", "  - name: to-rabbitmq\n    shared: true\n", 1)
	} else if r.profile == portable { // one relay has all of to-rabbitmq, both have a part of the others
		for _, name := range []string{"to-nats", "audit"} {
			text = strings.Replace(text, "  - name: "+name+"\n", "  - name: "+name+"\n    shared: true\n", 1)
		}
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	return r.launch(p, func() *exec.Cmd {
		cmd := exec.Command(r.binary, append([]string{"relay", "--config", config, "--holder", name}, r.profileFlags()...)...)
		cmd.Env = []string{"CHAOS_POSTGRES=" + p.postgres.url, "CHAOS_RABBITMQ=" + p.rabbit.url, "CHAOS_NATS=" + p.nats.url}
		return cmd
	})
}

// launch starts a relay or a worker, which command builds.
func (r *rig) launch(p *process, command func() *exec.Cmd) (err error) {
	if p.Program, err = testserver.NewProgram(p.name, command, nil); err != nil {
		return err
	}
	r.closers = append(r.closers, p.Close)
	r.processes = append(r.processes, p)
	return p.Start()
}
