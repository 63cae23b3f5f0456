package testserver

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
)

// Program is any other program that a test stops, kills, pauses and starts again.
// Like the servers it has a separate folder, where its output is in a log, and it ends with the
// process that started it.
type Program struct {
	*server
}

// NewProgram makes a program's folder; Start starts it. command builds one run of
// it; its environment is empty but for the PATH unless command sets one. ready
// returns nil once it answers, and may be nil.
func NewProgram(name string, command func() *exec.Cmd, ready func(ctx context.Context) error) (*Program, error) {
	p := &Program{&server{name: name, stopSig: syscall.SIGTERM, killSig: syscall.SIGKILL, ready: ready}}
	if ready == nil {
		p.ready = func(context.Context) error { return nil }
	}
	if err := p.newDir(); err != nil {
		return nil, err
	}
	p.command = func() *exec.Cmd {
		cmd := command()
		if cmd.Dir == "" {
			cmd.Dir = p.dir
		}
		if cmd.Env == nil {
			cmd.Env = baseEnv("HOME=" + p.dir)
		}
		return cmd
	}
	return p, nil
}

// Pause stops the program as it is, Resume lets it continue.
func (p *Program) Pause() error { return p.send(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Program) Resume() error { return p.send(syscall.SIGCONT) }

func (s *server) send(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.proc == nil:
		return fmt.Errorf("%s does not run", s.name)
	case !s.proc.running():
		return fmt.Errorf("%s ended by itself: %s\nend of its log:\n%s", s.name, s.proc.ended(), s.LogTail(10))
	}
	return syscall.Kill(-s.proc.pid(), sig)
}

// Ended returns how the program ended if it did so without Stop or Kill.
func (p *Program) Ended() (how string, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil || p.proc.running() {
		return "", false
	}
	return p.proc.ended(), true
}
