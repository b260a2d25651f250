//go:build !race

package main

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

// A second server on one data folder does not start, and names the folder and the first one.
func TestCaseC17_SecondServerOnFolder(t *testing.T) {
	addr := freeAddr(t)
	opt := options{Listen: addr, Domain: addr, AdminListen: freeAddr(t), Data: t.TempDir()}
	_, stop := server(t, opt)
	err := run(t.Context(), opt, slog.New(slog.DiscardHandler), nil)
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, opt.Data)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since ", os.Getpid()))
	stop()
}
