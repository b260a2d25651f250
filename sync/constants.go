package sync

import (
	"runtime"
	"time"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// FutureTolerance is the maximum time that created_at may be ahead of our clock. Later events are
// rejected.
const FutureTolerance = 15 * time.Minute

const (
	connectTimeout = 10 * time.Second // of one connection attempt

	// dialEvery is the minimum time between the starts of two connection attempts. It protects
	// proxies and resolvers.
	dialEvery = 250 * time.Millisecond

	// quickReconnect is the maximum length of a connection loss after which only the missed time is
	// fetched. After a longer loss all history is fetched.
	quickReconnect = 15 * time.Minute
	// overlap is the time before the last sign of life of a relay that a quick reconnect fetches
	// again. Servers hold events for 30 minutes until their git data arrives, and clocks differ by
	// up to 15 minutes.
	overlap = 45 * time.Minute

	// idleTimeout ends a request that receives no message for that time. firstAnswer applies before
	// the first event of a page, because large relays under load need more than 30 seconds.
	// totalTimeout ends any request.
	idleTimeout  = 30 * time.Second
	firstAnswer  = 2 * time.Minute
	totalTimeout = 5 * time.Minute
	// openTimeout is the maximum time that a request waits for the first answer to the previous
	// request, so that an answer without a subscription id can be assigned to one request.
	openTimeout = 2 * time.Second

	maxBatches = 4 // concurrent batches per relay
	// retryBase is the wait before the items of a failed batch are requested again on the same
	// connection. It doubles up to retryMax.
	retryBase = 30 * time.Second
	retryMax  = time.Hour

	// negentropyRetry is the time for which NIP-77 is not used with a relay that did not support
	// it. A relay without an answer for negentropyFirst counts as such. negentropyTimeout is the
	// maximum time of a reconciliation.
	negentropyRetry   = 4 * time.Hour
	negentropyFirst   = 10 * time.Second
	negentropyTimeout = 2 * time.Minute
	// negentropyFrame is the maximum size of a message of a reconciliation that we send, in bytes.
	// Hex doubles it, and the result is at most half of the message size of the relay.
	negentropyFrame = 30_000
	// negentropyRounds is the maximum number of messages of a relay in one reconciliation.
	// negentropyIDs is the maximum number of missing ids that one reconciliation finds. The found
	// events are fetched, and another reconciliation or pages fetch the rest.
	negentropyRounds = 64
	negentropyIDs    = 65_536
	maxSet           = 1_000_000 // ids that are loaded to reconcile one filter; larger sets are paged

	leastPageLimit = 5      // smallest page limit that is accepted from a relay
	maxPage        = 50_000 // events accepted in one page, because some relays ignore limits
	idsPerRequest  = 250    // events requested by id in one request, fewer if the relay accepts fewer

	// rebuildFilters is the number of live filters of a relay from which consolidation is
	// considered. The filters are replaced if that saves a fifth.
	rebuildFilters = 70
	// pollEvery is the maximum time between two requests for an item without room in a live
	// subscription.
	pollEvery = 10 * time.Minute

	// maxAuthors is the maximum number of authors of stored events whose deletions are requested.
	// authorsPerPass of them are requested from a relay in each pass, in turn. If there are more
	// authors, a changing sample is used.
	maxAuthors     = 10_000
	authorsPerPass = 1_000

	// strikes is the number of proofs of hostility within an hour, such as forged events, after
	// which the relay is disconnected.
	strikes = 3

	// gapAge is the minimum time that a live filter was open before the created_at of an event. If
	// the event then arrives only as history, it counts as a gap. With a short time, clock
	// differences count as gaps.
	gapAge = time.Minute
)

// usual are the assumed limits of a relay that declares none (NIP-11). Refusals correct them.
var usual = relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 20, MaxSubscriptions: 20}

// constants are the numbers that only tests change.
type constants struct {
	// MaxRelays bounds the known relays.
	MaxRelays int
	// MaxDials bounds the connection attempts that are younger than one second.
	MaxDials int
	// StoreTimeout bounds each call of the Store and the Policy.
	StoreTimeout time.Duration
	// BatchTimeout ends a batch of requests. Its progress is kept, and the rest is requested again.
	BatchTimeout time.Duration
	// Unproductive is the number of useless bytes that a relay host may send: unrequested, repeated
	// and forged events. Refill bytes are restored per minute. A relay that exceeds it is
	// disconnected for at least an hour and counted as dropped, "unproductive".
	Unproductive, Refill int64
	// Workers is the number of goroutines that check signatures.
	Workers int
	// MaxLabels bounds the relays with metrics, because series cost memory in the metrics server.
	MaxLabels int
	// ObserveQueue bounds the queued observations.
	ObserveQueue int
	// Waiting is the maximum number of events that wait for a dependency and are kept whole,
	// WaitingBytes their maximum size. Only the ids of the oldest events are kept. Recently
	// rejected events, and events with the verdict [graspsync.Later], each have the same number and
	// a quarter of the bytes.
	Waiting      int
	WaitingBytes int64
	// Remembered is the maximum number of remembered ids of recent stored events, and separately of
	// events that were rejected or wait. The oldest are evicted and fetched again in each pass. One
	// id takes about 300 bytes.
	Remembered int
	// RejectedFor is the time for which the id of a rejected event is remembered, including
	// restarts. The event is requested again if its dependency arrives.
	RejectedFor time.Duration
	// FeedQueue is the maximum number of changes collected in one batch window, or a quarter of the
	// known events if that is more. If it is exceeded, everything is planned again, which is slower
	// and loses nothing.
	FeedQueue int
	// PageLimit is the number of events requested in one page of history. For a relay that declares
	// a limit (NIP-11) it is that limit, at most twice PageLimit.
	PageLimit int
}

func (t *constants) setDefaults() {
	def(&t.MaxRelays, 50_000)
	def(&t.MaxDials, 10)
	def(&t.StoreTimeout, time.Minute)
	def(&t.BatchTimeout, 30*time.Minute)
	def(&t.Unproductive, 8<<20)
	def(&t.Refill, 64<<10)
	def(&t.Workers, runtime.GOMAXPROCS(0))
	def(&t.MaxLabels, 1_000)
	def(&t.ObserveQueue, 1_024)
	def(&t.Waiting, 10_000)
	def(&t.WaitingBytes, 32<<20)
	def(&t.Remembered, 200_000)
	def(&t.RejectedFor, 7*24*time.Hour)
	def(&t.FeedQueue, 10_000)
	def(&t.PageLimit, 500)
}
