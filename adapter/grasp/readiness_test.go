package grasp_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
)

// Ready reports a folder that is not writable and a full disk.
func TestServerIsReady(t *testing.T) {
	r := unstarted(t)
	r.start()
	require.Eventually(t, func() bool { return r.server.Ready(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	r.stop()

	r.configure = crowded(t, nil)
	r.start()
	require.Eventually(t, func() bool {
		err := r.server.Ready(t.Context())
		return errors.Is(err, khatruadapter.ErrRoom)
	}, time.Minute, 10*time.Millisecond)
	r.stop()

	r.configure = nil
	r.start()
	defer r.stop()
	incoming := filepath.Join(r.dir, "incoming")
	require.NoError(t, os.RemoveAll(incoming))
	require.NoError(t, os.WriteFile(incoming, nil, 0o600)) // works for root too, who can write anywhere except below a file
	require.Eventually(t, func() bool {
		err := r.server.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "writing to the folder of repositories")
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.Remove(incoming))
	require.NoError(t, os.Mkdir(incoming, 0o700))
}
