package dense

const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// Pages is a list that grows without copying elements, except in its first page. The zero value is
// empty.
type Pages[T any] struct{ pages [][]T }

// Len returns the number of elements.
func (p *Pages[T]) Len() int {
	if len(p.pages) == 0 {
		return 0
	}
	last := len(p.pages) - 1
	return last*pageSize + len(p.pages[last])
}

// At returns a pointer to element n, valid until the next Add.
func (p *Pages[T]) At(n uint32) *T { return &p.pages[n>>pageBits][n&(pageSize-1)] }

// Add appends an element.
func (p *Pages[T]) Add(v T) {
	last := len(p.pages) - 1
	switch {
	case last < 0:
		p.pages = append(p.pages, nil)
		last = 0
	case len(p.pages[last]) == pageSize:
		p.pages = append(p.pages, make([]T, 0, pageSize))
		last++
	}
	p.pages[last] = append(p.pages[last], v)
}
