package wstransport

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Idle checks that nothing is held of the read budget, and nobody waits for it.
func (t *Transport) Idle(tb testing.TB) {
	tb.Helper()
	used, waiting := t.readBudget.Stats()
	assert.Zero(tb, used, "each part is returned once")
	assert.Zero(tb, waiting)
}
