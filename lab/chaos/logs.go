package main

import (
	"os"
	"path/filepath"
	"reflect"
)

// logged is a server or program with a log.
type logged interface {
	Dir() string
}

// keepLog copies the log of a server or program into the run's folder.
func (r *rig) keepLog(name string, server logged) {
	text, err := os.ReadFile(logOf(server))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, name+".log"), text, 0o644)
	}
	if err != nil {
		r.chronicle.printf("the log of %s is not kept: %v", name, err)
	}
}

func (r *rig) keepLogs() {
	all := map[string]logged{"mysql": r.mysql, "postgres": r.postgres, "postgres-standby": r.standby, "rabbitmq": r.rabbit, "nats": r.nats}
	if r.citus != nil {
		for i, w := range r.citus.workers {
			all[r.citus.ways[i].name] = w
		}
	}
	for _, p := range r.processes {
		all[p.name] = p
	}
	for name, server := range all {
		if !reflect.ValueOf(server).IsNil() { // not all run
			r.keepLog(name, server)
		}
	}
}

func logOf(server logged) string { return filepath.Join(server.Dir(), "server.log") }
