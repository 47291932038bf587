// The package has no types. These are of the two functions that we use.
declare module 'pg-copy-streams' {
  import type { Readable, Writable } from 'node:stream'
  import type { Submittable } from 'pg'

  export function from(text: string): Writable & Submittable & { readonly rowCount: number }
  export function to(text: string): Readable & Submittable & { readonly rowCount: number }
}
