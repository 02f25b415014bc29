package installation

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// stopDeadline is how long a process may take to stop by itself: a worker drains its activities.
	stopDeadline = 30 * time.Second
	// logTail is how many bytes of a process's log an error quotes.
	logTail = 4 << 10
)

// Process is a child process that logs to a file.
type Process struct {
	name    string
	command *exec.Cmd
	log     string
	done    chan struct{}
	failure error
}

// StartProcess starts a program. The kernel kills it should this process die without stopping it, and
// it has a process group of its own, so that Ctrl-C reaches it through Stop alone, in order.
func StartProcess(log, program string, arguments ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", program, err)
	}
	defer file.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	process := &Process{name: program, command: command, log: log, done: make(chan struct{})}
	go func() {
		defer close(process.done)
		process.failure = command.Wait()
	}()
	return process, nil
}

// PID is the process's ID, by which Temporal knows a worker.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Failure is why an ended process failed, with the end of its log; nil when it ended well.
func (p *Process) Failure() error {
	<-p.done
	if p.failure == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; its log ends:\n%s", p.name, p.failure, p.tail())
}

// Log is everything the process has written so far.
func (p *Process) Log() (string, error) {
	text, err := os.ReadFile(p.log)
	return string(text), err
}

// Stop asks the process to end and waits until it has; one that does not is killed, which is an error.
// Stopping one that has ended is none, however it ended.
func (p *Process) Stop() error {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.command.Process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
			return nil
		} else if err != nil {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
	}
	select {
	case <-p.done:
		return p.Failure()
	case <-time.After(stopDeadline):
		return errors.Join(fmt.Errorf("stop %s: it did not end in %s; its log ends:\n%s", p.name, stopDeadline, p.tail()), p.Kill())
	}
}

// Kill ends the process as a power failure would and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Freeze stops the process's clock, so to speak: it neither runs nor ends until Thaw.
func (p *Process) Freeze() error { return p.command.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.command.Process.Signal(syscall.SIGCONT) }

// PeakMemory is the most memory the process has had resident, in bytes.
func (p *Process) PeakMemory() (int64, error) {
	peak, err := Memory(p.PID(), PeakMemory)
	if err != nil {
		return 0, fmt.Errorf("read peak memory of %s: %w", p.name, err)
	}
	return peak, nil
}

func (p *Process) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-logTail):])
}
