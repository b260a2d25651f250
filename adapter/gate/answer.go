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

// khatruSubscriptionKey is the context key that [khatru.GetSubscriptionID] reads.
const khatruSubscriptionKey = 1

// withSubscription returns a context in which khatru's hooks find the id of the subscription.
func withSubscription(ctx context.Context, subscription string) context.Context {
	return context.WithValue(ctx, khatruSubscriptionKey, subscription) //nolint:staticcheck // it is khatru's
}

// answerREQ answers a REQ with the hooks of a khatru relay, in khatru's order. Unlike khatru it
// calls the hooks for all filters before it queries or subscribes. It always sends an answer.
func (c *conn) answerREQ(ctx context.Context, s *sub, p *pending, filters []nostr.Filter) {
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
	c.g.live.listen(s, filters) // khatru also subscribes with filters as hooks have changed them
	var stored sync.WaitGroup
	var failed error
	for _, f := range asked {
		if !f.LimitZero {
			failed = cmp.Or(failed, c.query(ctx, relay, s, p, f, &stored))
		}
	}
	stored.Wait()
	if failed != nil { // EOSE would mean that the answer is complete
		c.refuseREQ(s, nostr.NormalizeOKMessage(failed.Error(), "error"))
		return
	}
	c.handleAnswer(encodeMessage(labelEOSE, nameOf(s.number)))
}

// refuseREQ ends a subscription. CLOSED goes through khatru, so that an AUTH challenge of a hook
// arrives before it.
func (c *conn) refuseREQ(s *sub, reason string) {
	if c.ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: strconv.FormatUint(s.number, 10), Reason: reason}) != nil {
		c.end(errGone)
	}
}

// judge returns the reason for which the relay refuses a filter, or "".
func judge(ctx context.Context, relay *khatru.Relay, f *nostr.Filter) (refusal string) {
	for _, overwrite := range relay.OverwriteFilter {
		overwrite(ctx, f)
	}
	if f.LimitZero { // no stored events are wanted
		return ""
	}
	for _, reject := range relay.RejectFilter {
		if is, msg := reject(ctx, *f); is {
			return nostr.NormalizeOKMessage(msg, "blocked")
		}
	}
	return ""
}

// query starts the relay's queries of stored events. It returns an error if the answer will be
// incomplete and the client still waits for it.
func (c *conn) query(ctx context.Context, relay *khatru.Relay, s *sub, p *pending, f nostr.Filter, stored *sync.WaitGroup) (failed error) {
	for _, query := range relay.QueryEvents {
		found, err := query(ctx, f)
		if err != nil {
			if ctx.Err() == nil {
				failed = cmp.Or(failed, err)
			}
			continue
		}
		if found != nil {
			stored.Go(func() { c.sendStored(ctx, relay, s, p, found) })
		}
	}
	return failed
}

// sendStored sends stored events when the client has read most of the earlier ones. Once they have
// been read, the answer occupies no shared slot, because the relay does no work for it.
func (c *conn) sendStored(ctx context.Context, relay *khatru.Relay, s *sub, p *pending, found <-chan *nostr.Event) {
	for e := range found {
		p.releaseShared()
		for _, overwrite := range relay.OverwriteResponseEvent {
			overwrite(ctx, e)
		}
		if !c.requests.isWanted(s, e.ID) {
			continue
		}
		o := outgoing{text: encodeMessage(labelEvent, s.name, []byte(e.String()))}
		_ = c.queue.await(ctx, func(int) bool { return !c.requests.waits(s.number) || c.put(o, c.g.soft()) })
	}
}
