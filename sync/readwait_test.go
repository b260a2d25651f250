package sync_test

import (
	relaysync "github.com/graspsync/graspsync/sync"
)

// silent is a connection that measures no traffic.
type silent struct{ relaysync.Conn }

// Traffic implements [relaysync.Conn].
func (silent) Traffic() relaysync.Traffic { return relaysync.Traffic{} }
