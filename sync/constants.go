package sync

import (
	"time"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// FutureTolerance is how far ahead of our clock an event may be dated. Events that are dated later are rejected.
const FutureTolerance = 15 * time.Minute

// constants are the numbers that suit all relays known so far, and about which no two
// operators would differ. Only tests have others.
type constants struct {
	// MaxRelays bounds the relays known. Defaults to 50,000.
	MaxRelays int
	// MaxDials bounds the attempts to connect at once, those aside that are older than a
	// second. Defaults to 10.
	MaxDials int
	// ConnectTimeout bounds one connection attempt. Defaults to 10 s.
	ConnectTimeout time.Duration
	// StoreTimeout bounds each call of the Store and the Policy. Defaults to 1 min.
	StoreTimeout time.Duration
	// Unproductive is how many unrequested, repeated and forged bytes each relay host may send. A
	// forged event counts as a 2,000th of it. Refill comes back each minute. The relay that exceeds it is
	// disconnected for at least an hour, and counted as dropped, "unproductive". Defaults to 8 MiB.
	Unproductive int64
	// Workers is how many goroutines check signatures: as many as can run at once, which is
	// said to the whole process. Defaults to GOMAXPROCS.
	Workers int
	// MaxLabels bounds the relays with metrics of their own; the others share the
	// label "other". A server that stores metrics can drop some, and none needs more.
	// Defaults to 1,000.
	MaxLabels int
	// DailyMin and DailyMax are the bounds of the time between two passes over the
	// whole history of a relay, drawn at random so that not all relays have theirs at once.
	// Default to 23 h and 25 h: a 24th less and more than PassEvery.
	DailyMin, DailyMax time.Duration
	// ObserveQueue bounds the observations that wait. Defaults to 1,024.
	ObserveQueue int
	// QuickReconnect is how long a connection may have been lost for just the time
	// in between to be fetched; after more, everything is. Defaults to 15 min.
	QuickReconnect time.Duration
	// Overlap is how far such a catch-up reaches back behind the last sign of life: servers
	// hold events for half an hour until their git data is here and serve them then, and
	// clocks differ by a quarter of one. Defaults to 45 min.
	Overlap time.Duration
	// IdleTimeout ends a request to which nothing more comes, TotalTimeout one that
	// does not end. Default to 30 s and 5 min. For the first event there is more time,
	// FirstAnswer.
	IdleTimeout, TotalTimeout time.Duration
	// BatchTimeout ends a batch of requests, keeping what it fetched; what is left
	// is asked for again. Defaults to 30 min.
	BatchTimeout time.Duration
	// RetryBase is how long the items of a failed batch wait before they are asked
	// for again on the same connection, doubling up to RetryMax. Default to 30 s and
	// 1 h.
	RetryBase, RetryMax time.Duration
	// NegentropyRetry is how long a relay that did not offer NIP-77 is not asked for
	// it again. Defaults to 4 h.
	NegentropyRetry time.Duration
	// FutureTolerance is how far ahead of our clock an event may be dated. Defaults
	// to 15 min.
	FutureTolerance time.Duration
	// MaxBatches bounds the batches at once per relay. Defaults to 4.
	MaxBatches int
	// Waiting bounds the events that are kept whole while they wait for what they
	// depend on, and WaitingBytes their size; of the oldest only the ids are kept, and
	// counted. As many more events, in a quarter of the bytes, are kept that were rejected a
	// moment ago (WholeFor), and as many again for which there was no room
	// ([graspsync.Later]): of these, where there are more, only the ids, counted as dropped,
	// "postponed". Default to 10,000 and 32 MiB.
	Waiting      int
	WaitingBytes int64
	// Remembered bounds the ids of events that need no second look: those stored
	// that were seen lately, and as many that were rejected or wait, or that there was no
	// room for, for RejectedFor;
	// the oldest go. With few of them rejected events are fetched again at each pass.
	// One costs about 300 bytes. Defaults to 200,000.
	Remembered int
	// RejectedFor is how long the id of a rejected event is remembered, over restarts
	// as well, and the event asked for again if what it depended on arrives; in whole
	// seconds. With a short one rejected events are fetched again at each pass.
	// Defaults to 7 days.
	RejectedFor time.Duration
	// FeedQueue bounds what the own feed gathers between two windows, or a quarter of what
	// is known does if that is more; when it is more than both everything is planned anew,
	// which is slower but loses nothing. Defaults to 10,000.
	FeedQueue int
	// MaxSet bounds the ids loaded to reconcile one filter; for larger sets pages
	// are used. Defaults to 1,000,000.
	MaxSet int

	// PageLimit is how many events are asked for in one page of history; of a relay
	// that names a limit (NIP-11), so many or twice this, whichever is less. Above the
	// cap that a relay does not name, an event that is published while a page is under
	// way may hide others; of a second with more events than a small page holds some
	// may be missed without NIP-77, and counted. Defaults to 500, the cap of most; at
	// least 5.
	PageLimit int
	// MaxPage is how many events are taken of one page, whatever was asked for: some
	// relays ignore limits. What sends more has that request ended, as a failure.
	// Defaults to 50,000; at least twice PageLimit.
	MaxPage int
	// IDsPerRequest is how many events are asked for by their ids in one request; less
	// where the relay takes less. More than a relay answers in full is asked for
	// again. Defaults to 250.
	IDsPerRequest int
	// OpenTimeout is how long the next request waits for the last one to get its first
	// answer, by which an answer that does not say what it is for can be told to
	// belong to one. Defaults to 2 s.
	OpenTimeout time.Duration
	// DialEvery is how long after the beginning of an attempt to connect the next one
	// begins: a proxy or a resolver behind all of them should not see a burst. With a long
	// one a start takes long where there are many relays. Defaults to 250 ms.
	DialEvery time.Duration
	// FirstAnswer is how long the first event of a page of history, or its end, may take:
	// large relays under load take more than half a minute. What comes after that has
	// IdleTimeout. With a short one such relays are asked the same again and
	// again. Defaults to 2 min, or IdleTimeout if that is more.
	FirstAnswer time.Duration

	// NegentropyFrame bounds a message of a reconciliation (NIP-77) that we send, in
	// bytes; hex makes it twice as long on the wire, which is at most half of what the
	// relay takes. Smaller ones need more rounds. Defaults to 30,000; at least 4,096.
	NegentropyFrame int
	// NegentropyRounds bounds the messages of a relay in one reconciliation, and
	// NegentropyIDs the events that it may be found to have and we not: fewer where all relays
	// together claim to have more than four million that they were not asked for. What is found
	// by then is fetched, and then the rest, by another one or by pages. Default to 64
	// and 65,536.
	NegentropyRounds, NegentropyIDs int
	// NegentropyFirst is how long the first answer of a reconciliation may take: a
	// relay that stays silent is taken not to offer NIP-77, for
	// NegentropyRetry. NegentropyTimeout bounds a reconciliation in all.
	// Default to 10 s and 2 min; the second is not below the first.
	NegentropyFirst, NegentropyTimeout time.Duration

	// MessageSize, in bytes, Filters of one request and Subscriptions of one connection
	// are what a relay is taken to allow that says nothing of them (NIP-11). What it
	// refuses is learned. Default to 64 KiB, 20 and 20; from 4 KiB to 128 KiB, at most
	// 100, and from 2 to 200.
	MessageSize, Filters, Subscriptions int
	// RebuildFilters is how many filters a relay follows live before it is looked at
	// whether fewer would do, packed anew; they are rebuilt if that saves a fifth. A
	// small one rebuilds often. Defaults to 70.
	RebuildFilters int
	// PollEvery is how often at least what finds no room live is asked for. A short
	// one makes many requests. Defaults to 10 min; at least 1 s.
	PollEvery time.Duration

	// MaxAuthors bounds the authors of what is stored whose deletions are asked for,
	// AuthorsPerPass how many of them a relay is asked about at each pass over its
	// history, in rotation. Where there are more they are a sample that changes. Default
	// to 10,000 and 1,000.
	MaxAuthors, AuthorsPerPass int

	// Strikes is how many proofs of hostility within an hour, as forged events are,
	// end a connection; the relay is then left alone for a while
	// (package health says how long). With 1 a single bad copy does. Defaults to 3.
	Strikes int
	// Refill is how many bytes of Unproductive come back in a minute. A large
	// one lets relays waste as much for ever. Defaults to 64 KiB.
	Refill int64
	// WholeFor is how long a rejected event is kept whole, so that it can be judged
	// again without being fetched when what it depended on arrives a moment later. In
	// bytes it is bounded by WaitingBytes. Defaults to 2 min.
	WholeFor time.Duration
	// GapAge is how long before an event's created_at a live filter must have been
	// open for the event, if only history brings it, to be a gap. A short one takes
	// clocks that differ for gaps. In whole seconds. Defaults to 1 min.
	GapAge time.Duration
}

// leastPageLimit is a page that every relay can be trusted to give, whatever it says.
const leastPageLimit = 5

// leastFrame is the smallest message that NIP-77 allows.
const leastFrame = 4096

// usual is what a relay takes that says nothing about it.
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

// validate tells bad of every field that can't be used. It expects defaults to be
// filled in.
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
