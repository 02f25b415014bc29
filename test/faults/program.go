package main

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// restartPause is how soon a program that ended by itself is started again, as whatever runs it in earnest would do.
const restartPause = 200 * time.Millisecond

// program is a part that runs in a process of its own. It is started again whenever it ends.
type program struct {
	name      string
	path      string
	arguments []string
	log       string

	mutex   sync.Mutex
	process *installation.Process
	held    bool
	stopped bool
	over    chan struct{}
	problem error
}

func startProgram(folder, name, path string, arguments ...string) (*program, error) {
	p := &program{name: name, path: path, arguments: arguments, log: filepath.Join(folder, name+".log"), over: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, err
	}
	go p.keep()
	return p, nil
}

func (p *program) start() error {
	process, err := installation.StartProcess(p.log, p.path, p.arguments...)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.process = process
	return nil
}

// keep starts the program again until it is stopped for good.
func (p *program) keep() {
	defer close(p.over)
	for {
		<-p.present().Done()
		time.Sleep(restartPause)
		if !p.again() {
			return
		}
	}
}

// again starts the program unless it is held down, or is not to run any more.
func (p *program) again() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.stopped:
		return false
	case p.held:
		return true
	}
	p.problem = p.start()
	return p.problem == nil
}

func (p *program) present() *installation.Process {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.process
}

// kill ends the program as a power failure would and keeps it down until release.
func (p *program) kill() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.held = true
	return p.process.Kill()
}

func (p *program) release() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.held = false
}

func (p *program) freeze() error { return p.present().Freeze() }

func (p *program) thaw() error { return p.present().Thaw() }

// stop ends the program for good.
func (p *program) stop() error {
	p.mutex.Lock()
	p.stopped = true
	process := p.process
	p.mutex.Unlock()
	err := process.Kill()
	<-p.over
	return err
}
