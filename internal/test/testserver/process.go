package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is one running program, leader of a separate process group.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the program has ended and was waited for
}

// startProcess runs cmd with its output appended to the file log.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is read from ProcessState
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ended returns how the program ended; to be called when done is closed.
func (p *process) ended() string { return p.cmd.ProcessState.String() }

// end sends sig to the process group and waits until the program is gone; one
// that does not follow within the patience is killed, which is an error.
func (p *process) end(sig syscall.Signal, patience time.Duration) error {
	if !p.running() {
		return nil // and its number may be another's by now
	}
	// ESRCH: it ended this moment; there is nothing to do but to wait.
	if err := syscall.Kill(-p.pid(), sig); err != nil && err != syscall.ESRCH {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("%s did not end within %s of signal %q and was killed", p.cmd.Path, patience, sig)
}
