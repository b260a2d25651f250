package wstransport

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Idle requires that no part of the read budget is in use, and that no connection waits for one.
func (t *Transport) Idle(tb testing.TB) {
	tb.Helper()
	used, waiting := t.readBudget.Stats()
	assert.Zero(tb, used, "each part is returned once")
	assert.Zero(tb, waiting)
}
