package testserver

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// guardScript outlives the process that started it by a moment. Its standard input ends when that
// process does, also by SIGKILL or by the panic of a test that ran out of time, where no cleanup
// function is called. It then ends the process groups it last heard of and removes the server's
// folder.
const guardScript = `
signal=$1 dir=$2 groups=
while read -r line; do groups=$line; done
for g in $groups; do kill -s "$signal" -- "-$g"; done
n=0
for g in $groups; do
	while kill -0 -- "-$g" && [ "$n" -lt 100 ]; do n=$((n+1)); sleep 0.1; done
	kill -s KILL -- "-$g"
done
rm -rf -- "$dir"
`

// guard watches over one server's processes and folder.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startGuard(signal syscall.Signal, dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard", fmt.Sprint(int(signal)), dir)
	cmd.Dir = "/"
	// A separate group, so that Ctrl-C does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// watch replaces the list of process groups.
func (g *guard) watch(procs ...*process) error {
	var ids []string
	for _, p := range procs {
		if p != nil {
			ids = append(ids, fmt.Sprint(p.pid()))
		}
	}
	_, err := fmt.Fprintln(g.pipe, strings.Join(ids, " "))
	return err
}

// close ends the watched processes, removes the folder and waits for both.
func (g *guard) close() error {
	g.pipe.Close()
	return g.cmd.Wait()
}
