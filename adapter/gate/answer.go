package gate

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

// subscriptionKey is where khatru has the name of the subscription that it answers: what
// [khatru.GetSubscriptionID] reads.
const khatruSubscriptionKey = 1

// asking is a context that khatru's hooks take for that of a subscription.
func withSubscription(ctx context.Context, subscription string) context.Context {
	return context.WithValue(ctx, khatruSubscriptionKey, subscription) //nolint:staticcheck // it is khatru's
}

// answer has a REQ answered by the hooks of a khatru relay, in the order in which that calls them; only that nobody but
// the Gate knows of the subscription afterwards, and that all filters are judged before any is looked for or listened with. Whatever
// becomes of it there is an answer.
func (c *conn) answerREQ(ctx context.Context, s *sub, filters []nostr.Filter) {
	relay := c.g.tap.relay
	asked := make([]nostr.Filter, 0, len(filters))
	for _, f := range filters {
		refusal := judge(ctx, relay, &f)
		if refusal == "" {
			asked = append(asked, f)
			continue
		}
		if strings.HasPrefix(refusal, "auth-required:") {
			khatru.RequestAuth(ctx)
		}
		c.refuseREQ(s, refusal)
		return
	}
	c.g.live.listen(s, filters) // as they are now: what hooks change in them khatru listens with as well
	var stored sync.WaitGroup
	var failed error
	for _, f := range asked {
		if !f.LimitZero {
			failed = cmp.Or(failed, c.query(ctx, relay, s, f, &stored))
		}
	}
	stored.Wait()
	if failed != nil { // EOSE would say that this was all
		c.refuseREQ(s, nostr.NormalizeOKMessage(failed.Error(), "error"))
		return
	}
	c.handleAnswer(encodeMessage(labelEOSE, nameOf(s.number)))
}

// closed ends a subscription. It goes the way of what the hooks have said themselves: a client is to have its challenge first.
func (c *conn) refuseREQ(s *sub, reason string) {
	if c.ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: strconv.FormatUint(s.number, 10), Reason: reason}) != nil {
		c.end(errGone)
	}
}

// judge says why the relay refuses a filter.
func judge(ctx context.Context, relay *khatru.Relay, f *nostr.Filter) (refusal string) {
	for _, overwrite := range relay.OverwriteFilter {
		overwrite(ctx, f)
	}
	if f.LimitZero { // nothing that is stored is wanted
		return ""
	}
	for _, reject := range relay.RejectFilter {
		if is, msg := reject(ctx, *f); is {
			return nostr.NormalizeOKMessage(msg, "blocked")
		}
	}
	return ""
}

// find has the relay look for what is stored. It returns why it can't say that this is all, unless the client wants no more of it.
func (c *conn) query(ctx context.Context, relay *khatru.Relay, s *sub, f nostr.Filter, stored *sync.WaitGroup) (failed error) {
	for _, query := range relay.QueryEvents {
		found, err := query(ctx, f)
		if err != nil {
			if ctx.Err() == nil {
				failed = cmp.Or(failed, err)
			}
			continue
		}
		if found != nil {
			stored.Go(func() { c.sendStored(ctx, relay, s, found) })
		}
	}
	return failed
}

func (c *conn) sendStored(ctx context.Context, relay *khatru.Relay, s *sub, found <-chan *nostr.Event) {
	for e := range found {
		for _, overwrite := range relay.OverwriteResponseEvent {
			overwrite(ctx, e)
		}
		c.handleAnswer(encodeMessage(labelEvent, nameOf(s.number), []byte(e.String())))
	}
}
