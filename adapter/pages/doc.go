// Package pages serves the public pages of a GRASP server: a front page that lists the hosted
// repositories, a page for each repository with its README, and a page for unknown addresses.
//
//	site := pages.New(pages.Config{
//		Identity: identity, Store: store, Announced: purgatory.Announced,
//		About: func() pages.About { return pages.About{Name: "grasp.example.com"} },
//	})
//	git, err := gitserve.New(repos, authority, gitserve.Config{Pages: site})
//	handler := git.Before(git.Page(http.HandlerFunc(site.Front)))
//
// The pages have no scripts, load nothing from other hosts except the operator's icon, and remember
// nothing about visitors. Text of strangers is escaped, reduced to printable characters and
// isolated in direction.
package pages
