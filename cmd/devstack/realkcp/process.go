package realkcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end in order before it is killed.
const stopTimeout = 5 * time.Second

// process is a running program with its output in a log file.
type process struct {
	name string
	log  string
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed
}

// startProcess starts a program that cannot outlive this process. Its end is reported
// once, to ended.
func startProcess(name, logFile string, command []string, ended func(*process)) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a terminal's Ctrl-C is for us to pass on, in order
		Pdeathsig: syscall.SIGKILL,
	}
	p := &process{name: name, log: logFile, stop: cancel, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux sends the Pdeathsig when the *thread* that started the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p.run(cmd, log, started, ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) run(cmd *exec.Cmd, log *os.File, started chan<- error, ended func(*process)) {
	err := cmd.Start()
	started <- err
	if err == nil {
		p.err = cmd.Wait()
	}
	if closeErr := log.Close(); p.err == nil {
		p.err = closeErr
	}
	close(p.done)
	if err == nil {
		ended(p)
	}
}

// end asks the process to end and waits for it.
func (p *process) end() {
	p.stop()
	<-p.done
}

// failure says that the process ended, and where to look.
func (p *process) failure() error {
	if p.err == nil {
		return fmt.Errorf("%s ended unasked, see %s", p.name, p.log)
	}
	return fmt.Errorf("%s ended unasked, see %s: %w", p.name, p.log, p.err)
}
