package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

var (
	errOver      = errors.New("the move is over")
	errUndoing   = errors.New("the move is being taken back already")
	errCommitted = errors.New("the commit has landed: the tenant lives at the destination, and the move only goes forward")
	errFenced    = errors.New("the tenant is away: a pause would only keep it away longer; wait, or abort, which gives it back")
)

// takeOrders lets people steer the move. A validator only reads; what it refuses leaves no trace in the history.
func (m *migration) takeOrders(ctx workflow.Context) error {
	for _, order := range []struct {
		name    string
		obey    any
		mayObey any
	}{
		{PauseUpdate, m.pause, m.mayPause},
		{ResumeUpdate, m.resume, m.mayResume},
		{ApproveUpdate, m.approve, m.mayApprove},
		{AbortUpdate, m.abort, m.mayAbort},
	} {
		options := workflow.UpdateHandlerOptions{Validator: order.mayObey}
		if err := workflow.SetUpdateHandlerWithOptions(ctx, order.name, order.obey, options); err != nil {
			return fmt.Errorf("set handler of update %s: %w", order.name, err)
		}
	}
	return nil
}

func (m *migration) mayPause() error {
	if err := m.mayAct(); err != nil {
		return err
	}
	if m.status.Fenced {
		return errFenced
	}
	return nil
}

// pause takes effect before the next step.
func (m *migration) pause(ctx workflow.Context) error {
	m.status.Paused = true
	m.show(ctx)
	return nil
}

func (m *migration) mayResume() error {
	if err := m.mayAct(); err != nil {
		return err
	}
	if !m.status.Paused {
		return errors.New("the move is not paused")
	}
	return nil
}

func (m *migration) resume(ctx workflow.Context) error {
	m.status.Paused = false
	m.show(ctx)
	return nil
}

func (m *migration) mayApprove() error {
	switch {
	case !m.input.RequireApproval:
		return errors.New("the move was not started with requireApproval")
	case m.approved:
		return errors.New("the move is approved already")
	}
	return m.mayAct()
}

// approve opens the gate, also ahead of it.
func (m *migration) approve(ctx workflow.Context) error {
	m.approved = true
	m.show(ctx)
	return nil
}

func (m *migration) mayAbort(AbortRequest) error { return m.mayAct() }

// abort takes the move back and waits for the outcome. It fails where the commit landed first.
func (m *migration) abort(ctx workflow.Context, request AbortRequest) error {
	reason := request.Reason
	if reason == "" {
		reason = "no reason given"
	}
	m.status.Aborting = true
	m.show(ctx)
	m.giveUp(activities.Refuse(activities.Aborted, "aborted: %s", reason))
	// A cancellation of the workflow must not end the wait: it cannot end the undo either.
	waiting, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(waiting, func() bool { return m.over || m.status.Committed }); err != nil {
		return err
	}
	if m.status.Committed {
		return errCommitted
	}
	return m.undoErr
}

// mayAct is what every order needs: a move that can still turn either way.
func (m *migration) mayAct() error {
	switch {
	case m.over:
		return errOver
	case m.status.Committed:
		return errCommitted
	case m.undoing || m.status.Aborting:
		return errUndoing
	}
	return nil
}

// giveUp stops the way to the commit.
func (m *migration) giveUp(cause error) {
	m.cause = cause
	m.stop()
}

// awaitResume holds a paused move.
func (m *migration) awaitResume(ctx workflow.Context) error {
	if m.status.Paused {
		m.waitsFor = ""
	}
	return workflow.Await(ctx, func() bool { return !m.status.Paused })
}
