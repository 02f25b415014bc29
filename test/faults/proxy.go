package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Mood is what a proxy does with what passes through it.
type Mood string

const (
	// sound passes everything on.
	sound Mood = "sound"
	// dropping resets every connection and refuses new ones.
	dropping Mood = "drop"
	// hanging keeps connections open and lets nothing through, as a network that loses every packet.
	hanging Mood = "hang"
	// delaying holds up every piece for delayedBy.
	delaying Mood = "delay"
)

const (
	delayedBy = 200 * time.Millisecond
	pieceSize = 32 << 10
)

// proxy is a connection between two parts that can be cut and healed. It has an address of its own that stays the same.
type proxy struct {
	target   string
	listener net.Listener

	mutex       sync.Mutex
	mood        Mood
	changed     chan struct{} // closed when the mood changes
	connections map[*tunnel]bool
	closed      bool
}

func startProxy(target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, listener: listener, mood: sound, changed: make(chan struct{}), connections: map[*tunnel]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set changes the mood, of open connections too.
func (p *proxy) set(mood Mood) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.mood = mood
	close(p.changed)
	p.changed = make(chan struct{})
	if mood == dropping {
		p.resetAll()
	}
}

// halfClose ends every open connection in the direction to the target; answers still come back.
func (p *proxy) halfClose() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for tunnel := range p.connections {
		tunnel.halfClose()
	}
}

func (p *proxy) close() error {
	p.mutex.Lock()
	p.closed = true
	p.resetAll()
	p.mutex.Unlock()
	return p.listener.Close()
}

func (p *proxy) resetAll() {
	for tunnel := range p.connections {
		tunnel.reset()
	}
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		go p.serve(near.(*net.TCPConn))
	}
}

func (p *proxy) serve(near *net.TCPConn) {
	if p.present() == dropping {
		reset(near)
		return
	}
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(near)
		return
	}
	t := &tunnel{near: near, far: far.(*net.TCPConn)}
	if !p.admit(t) {
		t.reset()
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { p.pass(t.near, t.far) })
	directions.Go(func() { p.pass(t.far, t.near) })
	directions.Wait()
	t.reset()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.connections, t)
}

// admit notes a connection, unless it came too late.
func (p *proxy) admit(t *tunnel) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed || p.mood == dropping {
		return false
	}
	p.connections[t] = true
	return true
}

func (p *proxy) present() Mood {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.mood
}

// pass hands on piece by piece, as the mood lets it.
func (p *proxy) pass(from, to *net.TCPConn) {
	piece := make([]byte, pieceSize)
	for {
		n, err := from.Read(piece)
		p.awaitPassage()
		if n > 0 {
			if _, writeErr := to.Write(piece[:n]); writeErr != nil {
				reset(from)
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite() // it may be closed already
			return
		}
		if err != nil {
			reset(to)
			return
		}
	}
}

// awaitPassage returns when a piece may go on: at once, later, or when nothing hangs any more.
func (p *proxy) awaitPassage() {
	for {
		p.mutex.Lock()
		mood, changed := p.mood, p.changed
		p.mutex.Unlock()
		switch mood {
		case hanging:
			<-changed
		case delaying:
			select {
			case <-changed:
			case <-time.After(delayedBy):
			}
			return
		default:
			return
		}
	}
}

// tunnel is one connection through a proxy.
type tunnel struct{ near, far *net.TCPConn }

func (t *tunnel) halfClose() {
	_ = t.near.CloseRead() // may have ended by itself, as below
	_ = t.far.CloseWrite()
}

func (t *tunnel) reset() {
	reset(t.near)
	reset(t.far)
}

// reset ends a connection with a TCP reset, which nobody can take for a proper end.
func reset(connection *net.TCPConn) {
	_ = connection.SetLinger(0) // it may have ended by itself
	_ = connection.Close()
}
