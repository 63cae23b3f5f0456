package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Galera is a private cluster of MariaDB servers with InnoDB, each of which takes writes.
type Galera struct{ Nodes []*MariaDB }

// StartGalera starts a cluster for this test alone, as StartMariaDB does a server.
func StartGalera(tb testing.TB, nodes int) *Galera {
	tb.Helper()
	g, err := NewGalera(nodes)
	need(tb, err)
	tb.Cleanup(func() {
		for _, m := range slices.Backward(g.Nodes) {
			closeAfter(tb, m.base())
		}
	})
	return g
}

// NewGalera starts one. A *MissingError if Galera is not installed.
func NewGalera(nodes int) (_ *Galera, err error) {
	library, err := galeraLibrary()
	if err != nil {
		return nil, err
	}
	replication := make([]int, nodes)
	var members []string
	for i := range replication {
		if replication[i], err = FreePort(); err != nil {
			return nil, err
		}
		members = append(members, loopback(replication[i]))
	}
	g := &Galera{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for i, port := range replication {
		incremental, err := FreePort()
		if err != nil {
			return nil, err
		}
		state, err := FreePort()
		if err != nil {
			return nil, err
		}
		m, err := newMariaDB("--wsrep-on=ON", "--wsrep-provider="+library, "--wsrep-cluster-name=penstock", "--wsrep-cluster-address=gcomm://"+strings.Join(members, ","),
			fmt.Sprintf("--wsrep-node-name=node%d", i+1), "--wsrep-node-address="+loopback(port), "--wsrep-sst-method=rsync", "--wsrep-sst-receive-address="+loopback(state),
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;gcache.size=64M", loopback(port), loopback(incremental)),
			"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2")
		if err != nil {
			return nil, err
		}
		m.founds, m.ready = i == 0, m.synced
		if err := m.begin(nil); err != nil {
			return nil, err
		}
		m.founds = false // started again it joins the others
		g.Nodes = append(g.Nodes, m)
	}
	return g, nil
}

// Close kills all and removes their data.
func (g *Galera) Close() (err error) {
	for _, m := range slices.Backward(g.Nodes) {
		err = errors.Join(err, m.Close())
	}
	return err
}

// synced is nil once the node takes part in the cluster.
func (m *MariaDB) synced(ctx context.Context) error {
	return withMariaDB(m.URL, func(db *sql.DB) error {
		var name, state string
		err := db.QueryRowContext(ctx, "show global status like 'wsrep_local_state_comment'").Scan(&name, &state)
		if err == nil && state != "Synced" {
			err = fmt.Errorf("the node is %s", state)
		}
		return err
	})
}

// galeraLibrary makes MariaDB a node.
func galeraLibrary() (string, error) {
	if _, err := mariadbBin(); err != nil {
		return "", err
	}
	if found, _ := filepath.Glob("/usr/lib*/galera*/libgalera_smm.so"); len(found) > 0 && !ofMySQL() {
		return found[0], nil
	}
	return "", &MissingError{Server: "Galera", Package: "galera-4", BinVar: "PATH"}
}
