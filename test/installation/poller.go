package installation

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// pollEvery is how often a Poller asks.
const pollEvery = 10 * time.Millisecond

// Availability is what a tenant's client saw.
type Availability struct {
	// Longest and Total are of the times between a good answer and the next good one with anything else between them.
	Longest, Total time.Duration
	// Answers counts answers by HTTP status; 0 is no answer at all.
	Answers map[int]int
}

// Poller asks for one object of a tenant every 10 ms over a kept connection and records when it is not served.
type Poller struct {
	client *http.Client
	url    string
	cancel context.CancelFunc
	done   chan struct{}

	mutex        sync.Mutex
	availability Availability
	lastGood     time.Time
	out          bool
}

// StartPoller starts one for a workspace; it returns after the first good answer.
func (i *Installation) StartPoller(ctx context.Context, workspace string) (*Poller, error) {
	config, err := i.TenantConfig(workspace)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make poller's client: %w", err)
	}
	client.Timeout = requestTimeout
	ctx, cancel := context.WithCancel(ctx)
	poller := &Poller{
		client: client, cancel: cancel, done: make(chan struct{}),
		url:          config.Host + "/api/v1/namespaces/" + tenantNamespace,
		availability: Availability{Answers: map[int]int{}},
	}
	if status := poller.ask(ctx); status != http.StatusOK {
		cancel()
		return nil, fmt.Errorf("poll %s: status %d before anything was done to it", workspace, status)
	}
	poller.lastGood = time.Now()
	go poller.run(ctx)
	return poller, nil
}

// Stop ends the polling and tells what was seen. An outage that has not ended counts up to now.
func (p *Poller) Stop() Availability {
	p.cancel()
	<-p.done
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.out {
		p.count(time.Since(p.lastGood))
		p.out = false
	}
	seen := p.availability
	seen.Answers = maps.Clone(seen.Answers)
	return seen
}

func (p *Poller) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		status := p.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		p.record(status)
	}
}

// ask gives the answer's HTTP status, 0 for none.
func (p *Poller) ask(ctx context.Context) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return 0
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

func (p *Poller) record(status int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.availability.Answers[status]++
	if status != http.StatusOK {
		p.out = true
		return
	}
	now := time.Now()
	if p.out {
		p.count(now.Sub(p.lastGood))
	}
	p.lastGood, p.out = now, false
}

func (p *Poller) count(outage time.Duration) {
	p.availability.Total += outage
	p.availability.Longest = max(p.availability.Longest, outage)
}
