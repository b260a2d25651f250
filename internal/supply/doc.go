// Package supply tests that the library has few dependencies.
package supply
