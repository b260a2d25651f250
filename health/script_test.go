package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/graspsync/graspsync/internal/goldentest"
)

// TestScripts plays the scenarios of testdata. A line is a comment (#), the output of the line
// before (>), or a command:
//
//	<time> <event> [text]    an event, at this time after the start
//	<time> show              shows the state
//	<time> fail until <time> dials when due and fails immediately; the output has the attempts
//	<time> restart           a new process imports the record from JSON
//	<time> lose              saves the record; later changes are lost at the next restart
//	rand <number>            sets the random value
//
// The output is the state, and differences from an unknown relay.
func TestScripts(t *testing.T) {
	goldentest.Play(t, func(t *testing.T) goldentest.Player {
		p := player{config: Config{}.withDefaults()}
		return p.command
	})
}

// start is time 0 of all scripts.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

type player struct {
	config Config
	record Record
	saved  []byte // nil: every change is saved
	jitter float64
}

func (p *player) command(words []string) ([]string, error) {
	if len(words) == 2 && words[0] == "rand" {
		v, err := strconv.ParseFloat(words[1], 64)
		p.jitter = v
		return nil, err
	}
	if len(words) < 2 {
		return nil, errors.New("time and event are needed")
	}
	after, err := time.ParseDuration(words[0])
	if err != nil {
		return nil, err
	}
	now := start.Add(after)
	text := strings.Join(words[2:], " ")
	kinds := map[string]kind{
		"attempt": attempt, "connected": connected, "failed": failed, "lost": lost,
		"closed": closed, "hostile": hostile, "hung": hung,
	}
	prefix := ""
	switch verb := words[1]; {
	case kinds[verb] != 0:
		p.record = p.config.step(p.record, event{kind: kinds[verb], text: text}, now, p.jitter)
	case verb == "show":
	case verb == "fail":
		until, err := time.ParseDuration(strings.TrimPrefix(text, "until "))
		if err != nil {
			return nil, err
		}
		var attempts int
		attempts, now = p.failUntil(now, start.Add(until))
		prefix = fmt.Sprintf("attempts=%d ", attempts)
	case verb == "lose":
		p.saved, err = json.Marshal(p.record.settle(now).countTo(now).forSaving())
		return nil, err
	case verb == "restart":
		if err := p.restart(now); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown event %q", verb)
	}
	return []string{prefix + p.describe(now)}, nil
}

func (p *player) failUntil(now, end time.Time) (int, time.Time) {
	for n := 0; ; n++ {
		if due := p.record.settle(now).nextAttempt(); due.After(now) {
			now = due
		}
		if !now.Before(end) {
			return n, end
		}
		p.record = p.config.step(p.record, event{kind: attempt}, now, p.jitter)
		p.record = p.config.step(p.record, event{kind: failed}, now, p.jitter)
	}
}

func (p *player) restart(now time.Time) (err error) {
	saved := p.saved
	if saved == nil {
		if saved, err = json.Marshal(p.record.settle(now).countTo(now).forSaving()); err != nil {
			return err
		}
	}
	p.saved, p.record = nil, Record{}
	if err = json.Unmarshal(saved, &p.record); err != nil {
		return err
	}
	p.record = p.config.restore(p.record, now, p.jitter)
	return nil
}

// describe returns the golden output.
func (p *player) describe(now time.Time) string {
	s := p.config.status(p.record, now)
	words := []string{strings.ReplaceAll(s.State.String(), " ", "-")}
	add := func(yes bool, format string, args ...any) {
		if yes {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(s.Connected, "connected")
	add(p.record.Dialing, "dialing")
	add(s.Proven, "good")
	add(s.Failures > 0, "failures=%d", s.Failures)
	add(!s.NextAttempt.IsZero(), "next=%v", s.NextAttempt.Sub(start))
	add(s.Disconnects > 0, "disconnects=%d", s.Disconnects)
	add(s.Reconnects > 0, "reconnects=%d", s.Reconnects)
	add(s.Up > 0, "up=%v", s.Up)
	add(s.Down > 0, "down=%v", s.Down)
	add(s.LastError != "", "error=%q", s.LastError)
	return strings.Join(words, " ")
}
