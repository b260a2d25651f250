package eventstoreadapter_test

import (
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/fiatjaf/eventstore"
	esbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// khatru.NewRelay starts it and nothing ends it
		goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

func newSlice(t testing.TB, maxLimit int) eventstore.Store {
	t.Helper()
	db := &slicestore.SliceStore{MaxLimit: maxLimit}
	require.NoError(t, db.Init())
	return db
}

func newBadger(t testing.TB, maxLimit int) *esbadger.BadgerBackend {
	t.Helper()
	db := &esbadger.BadgerBackend{
		Path: t.TempDir(), MaxLimit: maxLimit,
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLoggingLevel(badger.ERROR)
		},
	}
	require.NoError(t, db.Init())
	t.Cleanup(db.Close)
	return db
}

func newStore(t testing.TB, db eventstore.Store, cfg eventstoreadapter.Config) *eventstoreadapter.Store {
	t.Helper()
	s, err := eventstoreadapter.New(db, cfg)
	require.NoError(t, err)
	return s
}

func suite(t *testing.T, open func(t *testing.T) eventstore.Store, cfg eventstoreadapter.Config) {
	t.Helper()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	cfg.Identity = identity
	storetest.RunAs(t, identity, func(t *testing.T) relaysync.Store { return newStore(t, open(t), cfg) })
}

func TestSuiteSlicestore(t *testing.T) {
	suite(t, func(t *testing.T) eventstore.Store { return newSlice(t, 0) }, eventstoreadapter.Config{})
}

func TestSuiteBadger(t *testing.T) {
	racetest.Amounts(t)
	suite(t, func(t *testing.T) eventstore.Store { return newBadger(t, 0) }, eventstoreadapter.Config{NoSync: true})
}

func TestDurableBadger(t *testing.T) {
	storetest.RunDurable(t, func(t *testing.T, folder string) (relaysync.Store, func()) {
		t.Helper()
		db := &esbadger.BadgerBackend{Path: folder, BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLoggingLevel(badger.ERROR)
		}}
		require.NoError(t, db.Init())
		return newStore(t, db, eventstoreadapter.Config{}), db.Close
	})
}

// With MaxLimit set, answers to clients end at that number of events, and answers to sync do not.
func TestSuiteBadgerMaxLimit(t *testing.T) {
	racetest.Amounts(t)
	suite(t, func(t *testing.T) eventstore.Store { return newBadger(t, 500) }, eventstoreadapter.Config{NoSync: true})
}
