import type { Contact } from '../port.ts'

/** The state of calls and sessions that a report or heartbeat does not contain. */
export interface Progress {
  /** Age of the oldest unreported call in milliseconds; 0 if all calls are reported. */
  readonly unreportedMs: number
  /** The process knows all sessions that were joined up to this instant. */
  readonly sharedThrough: Date
}

/** Returns core's knowledge of a process after a report at `at`. */
export const toContact = ({ unreportedMs, sharedThrough }: Progress, at: Date): Contact => ({
  seenAt: at,
  completeAt: new Date(at.getTime() - unreportedMs),
  sharedThrough,
})

/**
 * Returns the instant up to which core knows all calls of a session that the process allowed. It is
 * the last contact if the process already knew that the session is shared, because it then reports
 * such calls at once.
 */
export const knownUntil = (contact: Contact, sharedAt: Date | null): Date =>
  sharedAt !== null && contact.sharedThrough >= sharedAt ? contact.seenAt : contact.completeAt
