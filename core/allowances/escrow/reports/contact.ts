import type { Contact } from '../port.ts'

/** What a report or heartbeat contains of the calls that it leaves out. */
export interface Progress {
  /** Age of the oldest call that is in no report yet, in milliseconds; 0 without one. */
  readonly unreportedMs: number
  /** Sessions that were joined until then are known to the process. */
  readonly sharedThrough: Date
}

/** A process as core knows it after a report at `at`. */
export const toContact = ({ unreportedMs, sharedThrough }: Progress, at: Date): Contact => ({
  seenAt: at,
  completeAt: new Date(at.getTime() - unreportedMs),
  sharedThrough,
})

/**
 * Until when core knows all calls of a session that the process has allowed: until its last contact, where it knows since then
 * that the session is shared, because it reports such calls at once.
 */
export const knownUntil = (contact: Contact, sharedAt: Date | null): Date =>
  sharedAt !== null && contact.sharedThrough >= sharedAt ? contact.seenAt : contact.completeAt
