package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// The contenders.
const (
	// baseline is what kcp's own migration does.
	baseline = "baseline"
	// paged and streamed are the product's activities, reading in pages and by RangeStream.
	paged    = "ours paged"
	streamed = "ours streamed"
	// ceiling is the fastest simple thing: no hop, no checks.
	ceiling = "ceiling"
)

// contenders are all, in the order in which they take turns.
var contenders = []string{baseline, paged, streamed, ceiling}

// tasksOf are the phases of a move that a contender has.
func tasksOf(contender string) []task {
	switch contender {
	case baseline:
		return []task{copying, cleanup}
	case ceiling:
		return []task{copying}
	default:
		return []task{copying, verify, cleanup}
	}
}

// worker is a worker process as the bench sees it.
type worker struct {
	name    string
	command *exec.Cmd
	orders  io.WriteCloser
	encoder *json.Encoder
	answers *json.Decoder
	log     string
}

// startWorker starts this very program as a worker and returns once it has its etcd.
func startWorker(folder string, assigned assignment) (*worker, error) {
	if assigned.Profile != "" {
		name := fmt.Sprintf("%s-%s.pprof", strings.ReplaceAll(assigned.Contender, " ", "-"), assigned.Role)
		assigned.Profile = filepath.Join(assigned.Profile, name)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{name: string(assigned.Role) + " worker", log: filepath.Join(folder, string(assigned.Role)+"-worker.log")}
	log, err := os.Create(w.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	w.command = exec.Command(program, workerCommand)
	w.command.Stderr = log
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if w.orders, err = w.command.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := w.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.encoder, w.answers = json.NewEncoder(w.orders), json.NewDecoder(answers)
	if err := w.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", w.name, err)
	}
	if _, err := w.exchange(assigned); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

func (w *worker) pid() int { return w.command.Process.Pid }

// do has the worker do something.
func (w *worker) do(order order) (answer, error) {
	done, err := w.exchange(order)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", order.Task, err)
	}
	return done, nil
}

func (w *worker) exchange(message any) (answer, error) {
	if err := w.encoder.Encode(message); err != nil {
		return answer{}, fmt.Errorf("tell %s: %w", w.name, err)
	}
	var done answer
	if err := w.answers.Decode(&done); err != nil {
		return answer{}, fmt.Errorf("hear %s (log %s): %w", w.name, w.log, err)
	}
	if done.Problem != "" {
		return answer{}, fmt.Errorf("%s: %s", w.name, done.Problem)
	}
	return done, nil
}

func (w *worker) stop() error {
	if w == nil {
		return nil
	}
	if err := errors.Join(w.orders.Close(), w.command.Wait()); err != nil {
		return fmt.Errorf("stop %s (log %s): %w", w.name, w.log, err)
	}
	return nil
}

// duel is the two workers of one repetition; a ceiling has only the one that copies.
type duel struct {
	origin, destination *worker
	// address is where the origin's worker serves, revision the origin's to copy, and then the one that was verified.
	address  string
	revision int64
}

func startDuel(ctx context.Context, folder string, assigned assignment) (_ *duel, err error) {
	d := &duel{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	if assigned.Contender != ceiling {
		assigned.Role = originRole
		if d.origin, err = startWorker(folder, assigned); err != nil {
			return nil, err
		}
		served, err := d.origin.do(order{Task: serve})
		if err != nil {
			return nil, err
		}
		d.address, d.revision = served.Address, served.Revision
	}
	assigned.Role = destinationRole
	d.destination, err = startWorker(folder, assigned)
	return d, errors.Join(err, ctx.Err())
}

func (d *duel) do(task task) (answer, error) {
	order := order{Task: task, Address: d.address, Revision: d.revision}
	if task == cleanup {
		return d.origin.do(order)
	}
	done, err := d.destination.do(order)
	if task == verify {
		d.revision = done.Revision
	}
	return done, err
}

// processes are the PIDs by name.
func (d *duel) processes() map[string]int {
	found := map[string]int{d.destination.name: d.destination.pid()}
	if d.origin != nil {
		found[d.origin.name] = d.origin.pid()
	}
	return found
}

func (d *duel) stop() error { return errors.Join(d.destination.stop(), d.origin.stop()) }
