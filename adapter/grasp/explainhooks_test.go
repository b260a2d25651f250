package grasp_test

import (
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/explain"
)

// explained returns the explanation of an event.
func (r *rig) explained(ev *nostr.Event) explain.Explanation {
	r.t.Helper()
	x, err := r.server.Explain(r.t.Context(), ev.ID)
	require.NoError(r.t, err)
	return x
}
