package sync

import (
	"time"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// FutureTolerance is the maximum time that created_at may be ahead of our clock. Later events are
// rejected.
const FutureTolerance = 15 * time.Minute

// constants are the numbers that no operator needs to change. Only tests set them.
type constants struct {
	// MaxRelays bounds the known relays. Defaults to 50,000.
	MaxRelays int
	// MaxDials bounds the connection attempts that are younger than one second. Defaults to 10.
	MaxDials int
	// ConnectTimeout bounds one connection attempt. Defaults to 10 s.
	ConnectTimeout time.Duration
	// StoreTimeout bounds each call of the Store and the Policy. Defaults to 1 min.
	StoreTimeout time.Duration
	// Unproductive is the number of useless bytes that a relay host may send: unrequested, repeated
	// and forged events. A forged event counts as 1/2,000 of it. Refill bytes are restored per
	// minute. A relay that exceeds it is disconnected for at least an hour and counted as dropped,
	// "unproductive". Defaults to 8 MiB.
	Unproductive int64
	// Workers is the number of goroutines that check signatures. Defaults to GOMAXPROCS.
	Workers int
	// MaxLabels bounds the relays with metrics of their own. All others share the label "other",
	// because series cost memory in the metrics server. Defaults to 1,000.
	MaxLabels int
	// DailyMin and DailyMax bound the random time between two passes over the history of a relay.
	// The time is random so that the passes of different relays do not coincide. Default to
	// 23 h and 25 h, which is PassEvery minus and plus a twenty-fourth.
	DailyMin, DailyMax time.Duration
	// ObserveQueue bounds the queued observations. Defaults to 1,024.
	ObserveQueue int
	// QuickReconnect is the maximum length of a connection loss after which only the missed time is
	// fetched. After a longer loss all history is fetched. Defaults to 15 min.
	QuickReconnect time.Duration
	// Overlap is the time before the last sign of life of a relay that a quick reconnect fetches
	// again. Servers hold events for 30 minutes until their git data arrives, and clocks differ by
	// up to 15 minutes. Defaults to 45 min.
	Overlap time.Duration
	// IdleTimeout ends a request that receives no message for that time. FirstAnswer applies before
	// the first event. TotalTimeout ends any request. Default to 30 s and 5 min.
	IdleTimeout, TotalTimeout time.Duration
	// BatchTimeout ends a batch of requests. Its progress is kept, and the rest is requested again.
	// Defaults to 30 min.
	BatchTimeout time.Duration
	// RetryBase is the wait before the items of a failed batch are requested again on the same
	// connection. It doubles up to RetryMax. Default to 30 s and 1 h.
	RetryBase, RetryMax time.Duration
	// NegentropyRetry is the time for which NIP-77 is not used with a relay that did not support
	// it. Defaults to 4 h.
	NegentropyRetry time.Duration
	// FutureTolerance is the maximum time that created_at may be ahead of our clock. Defaults to
	// 15 min.
	FutureTolerance time.Duration
	// MaxBatches bounds the concurrent batches per relay. Defaults to 4.
	MaxBatches int
	// Waiting is the maximum number of events that wait for a dependency and are kept whole,
	// WaitingBytes their maximum size. Only the ids of the oldest events are kept. Recently
	// rejected events have the same number and a quarter of the bytes, and are kept for WholeFor.
	// Events with the verdict [graspsync.Later] have the same number. Beyond it only their ids are
	// kept, counted as dropped, "postponed". Default to 10,000 and 32 MiB.
	Waiting      int
	WaitingBytes int64
	// Remembered is the maximum number of remembered ids of recent stored events, and separately of
	// events that were rejected or wait. The oldest are evicted. With a small number, rejected
	// events are fetched again in each pass. One id takes about 300 bytes. Defaults to 200,000.
	Remembered int
	// RejectedFor is the time for which the id of a rejected event is remembered, including
	// restarts. The event is requested again if its dependency arrives. The unit is whole seconds.
	// With a short time, rejected events are fetched again in each pass. Defaults to 7 days.
	RejectedFor time.Duration
	// FeedQueue is the maximum number of changes collected in one batch window, or a quarter of the
	// known events if that is more. If it is exceeded, everything is planned again, which is slower
	// and loses nothing. Defaults to 10,000.
	FeedQueue int
	// MaxSet bounds the ids that are loaded to reconcile one filter. Larger sets are paged.
	// Defaults to 1,000,000.
	MaxSet int

	// PageLimit is the number of events requested in one page of history. For a relay that declares
	// a limit (NIP-11) it is that limit, at most twice PageLimit. If a relay has an undeclared
	// lower limit, an event that is published during a page may hide others. Without NIP-77, events
	// of a second with more events than a small page may be missed, and are counted. Defaults to
	// 500, the limit of most relays; at least 5.
	PageLimit int
	// MaxPage is the maximum number of events accepted in one page, because some relays ignore
	// limits. A request that exceeds it fails. Defaults to 50,000; at least twice PageLimit.
	MaxPage int
	// IDsPerRequest is the number of events that are requested by id in one request, fewer if the
	// relay accepts fewer. Missing events are requested again. Defaults to 250.
	IDsPerRequest int
	// OpenTimeout is the maximum time that a request waits for the first answer to the previous
	// request, so that an answer without a subscription id can be assigned to one request. Defaults
	// to 2 s.
	OpenTimeout time.Duration
	// DialEvery is the minimum time between the starts of two connection attempts. It protects
	// proxies and resolvers. With many relays a long time delays the start. Defaults to 250 ms.
	DialEvery time.Duration
	// FirstAnswer is the maximum time until the first event of a page, or its end. Large relays
	// under load need more than 30 seconds. With a short time the same request is repeated again
	// and again. Defaults to 2 min, or IdleTimeout if that is more.
	FirstAnswer time.Duration

	// NegentropyFrame bounds a message of a reconciliation (NIP-77) that we send, in bytes. Hex
	// doubles it, and the result is at most half of the message size of the relay. Small messages
	// need more rounds. Defaults to 30,000; at least 4,096.
	NegentropyFrame int
	// NegentropyRounds is the maximum number of messages of a relay in one reconciliation.
	// NegentropyIDs is the maximum number of missing ids that one reconciliation finds. It is lower
	// while all relays together claim more than four million ids. The found events are fetched, and
	// another reconciliation or pages fetch the rest. Default to 64 and 65,536.
	NegentropyRounds, NegentropyIDs int
	// NegentropyFirst is the maximum time until the first answer of a reconciliation. A silent
	// relay counts as without NIP-77 for NegentropyRetry. NegentropyTimeout is the maximum time of
	// a reconciliation and not below NegentropyFirst. Default to 10 s and 2 min.
	NegentropyFirst, NegentropyTimeout time.Duration

	// MessageSize in bytes, Filters per request and Subscriptions per connection are the assumed
	// limits of a relay that declares none (NIP-11). Refusals correct them. Default to 64 KiB, 20
	// and 20. MessageSize is from 4 KiB to 128 KiB, Filters at most 100, Subscriptions from 2 to
	// 200.
	MessageSize, Filters, Subscriptions int
	// RebuildFilters is the number of live filters of a relay from which consolidation is
	// considered. The filters are replaced if that saves a fifth. Defaults to 70.
	RebuildFilters int
	// PollEvery is the maximum time between two requests for an item without room in a live
	// subscription. A short time makes many requests. Defaults to 10 min; at least 1 s.
	PollEvery time.Duration

	// MaxAuthors is the maximum number of authors of stored events whose deletions are requested.
	// AuthorsPerPass of them are requested from a relay in each pass, in turn. If there are more
	// authors, a changing sample is used. Default to 10,000 and 1,000.
	MaxAuthors, AuthorsPerPass int

	// Strikes is the number of proofs of hostility within an hour, such as forged events, after
	// which the relay is disconnected. Package health decides for how long. Defaults to 3.
	Strikes int
	// Refill is the number of bytes that return to Unproductive in a minute. Defaults to 64 KiB.
	Refill int64
	// WholeFor is the time for which a rejected event is kept whole. If its dependency arrives in
	// that time, the event need not be fetched again. WaitingBytes bounds the size. Defaults to 2
	// min.
	WholeFor time.Duration
	// GapAge is the minimum time that a live filter was open before the created_at of an event. If
	// the event then arrives only as history, it counts as a gap. With a short time, clock
	// differences count as gaps. The unit is whole seconds. Defaults to 1 min.
	GapAge time.Duration
}

// leastPageLimit is the smallest page limit that is accepted from a relay.
const leastPageLimit = 5

// leastFrame is the smallest message that NIP-77 allows.
const leastFrame = 4096

// usual returns the assumed limits of a relay that declares none.
func (t constants) usual() relaylimits.Requests {
	return relaylimits.Requests{MaxMessage: t.MessageSize, MaxFilters: t.Filters, MaxSubscriptions: t.Subscriptions}
}

func (t constants) withDefaults() constants {
	def(&t.PageLimit, 500)
	def(&t.MaxPage, 50_000)
	def(&t.IDsPerRequest, 250)
	def(&t.OpenTimeout, 2*time.Second)
	def(&t.DialEvery, 250*time.Millisecond)
	def(&t.FirstAnswer, 2*time.Minute)
	def(&t.NegentropyFrame, 30_000)
	def(&t.NegentropyRounds, 64)
	def(&t.NegentropyIDs, 65_536)
	def(&t.NegentropyFirst, 10*time.Second)
	def(&t.NegentropyTimeout, 2*time.Minute)
	def(&t.MessageSize, 64<<10)
	def(&t.Filters, 20)
	def(&t.Subscriptions, 20)
	def(&t.RebuildFilters, 70)
	def(&t.PollEvery, 10*time.Minute)
	def(&t.MaxAuthors, 10_000)
	def(&t.AuthorsPerPass, 1_000)
	def(&t.Strikes, 3)
	def(&t.Refill, 64<<10)
	def(&t.WholeFor, 2*time.Minute)
	def(&t.GapAge, time.Minute)
	return t
}

// validate calls bad for every invalid field. Defaults must be set.
func (t constants) validate(bad func(field string, value any, want string)) {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"OpenTimeout", t.OpenTimeout}, {"FirstAnswer", t.FirstAnswer},
		{"DialEvery", t.DialEvery}, {"NegentropyFirst", t.NegentropyFirst},
		{"WholeFor", t.WholeFor}, {"GapAge", t.GapAge},
	} {
		if d.value < 0 {
			bad(d.name, d.value, "a positive duration")
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"IDsPerRequest", int64(t.IDsPerRequest)},
		{"NegentropyRounds", int64(t.NegentropyRounds)}, {"NegentropyIDs", int64(t.NegentropyIDs)},
		{"RebuildFilters", int64(t.RebuildFilters)},
		{"MaxAuthors", int64(t.MaxAuthors)}, {"AuthorsPerPass", int64(t.AuthorsPerPass)},
		{"Strikes", int64(t.Strikes)}, {"Refill", t.Refill},
	} {
		if n.value < 0 {
			bad(n.name, n.value, "a positive number")
		}
	}
	if t.PageLimit < leastPageLimit {
		bad("PageLimit", t.PageLimit, "at least 5")
	}
	if t.MaxPage/2 < t.PageLimit {
		bad("MaxPage", t.MaxPage, "at least twice PageLimit")
	}
	if t.NegentropyFrame < leastFrame {
		bad("NegentropyFrame", t.NegentropyFrame, "at least 4,096")
	}
	if t.NegentropyTimeout < t.NegentropyFirst || t.NegentropyTimeout < 0 {
		bad("NegentropyTimeout", t.NegentropyTimeout, "at least NegentropyFirst")
	}
	if t.MessageSize < relaylimits.LeastSaid || t.MessageSize > relaylimits.MostSaid {
		bad("MessageSize", t.MessageSize, "4 KiB to 128 KiB")
	}
	if t.Filters < 1 || t.Filters > relaylimits.MostFilters {
		bad("Filters", t.Filters, "1 to 100")
	}
	if t.Subscriptions < relaylimits.LeastSubscriptions || t.Subscriptions > relaylimits.MostSubscriptions {
		bad("Subscriptions", t.Subscriptions, "2 to 200")
	}
	if t.PollEvery < time.Second {
		bad("PollEvery", t.PollEvery, "at least 1 s")
	}
}
