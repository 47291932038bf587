import { timingSafeEqual } from 'node:crypto'
import type { Secrets } from '../../shared/secrets.ts'
import { isUuid } from '../../shared/ids.ts'

/** Signed links to the pages of invoices, which need no login. */

const tokenSyntax = /^([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/
const textOf = (id: string): string => `tollgate invoice ${id}`

/** Returns the token of a document's page. It is a credential for this one document. */
export const signLink = (id: string, secrets: Pick<Secrets, 'store'>): string =>
  `${id.replaceAll('-', '')}_${secrets.store(textOf(id)).hash.toString('base64url')}`

/** Returns the id of the document that a token leads to; null for a forged token. */
export function readLink(token: string, secrets: Pick<Secrets, 'candidates'>): string | null {
  const [, hex = '', signature = ''] = tokenSyntax.exec(token) ?? []
  const id = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
  if (!isUuid(id)) return null
  const bytes = Buffer.from(signature, 'base64url')
  const isSigned = secrets
    .candidates(textOf(id))
    .some((hash) => hash.length === bytes.length && timingSafeEqual(hash, bytes))
  return isSigned ? id : null
}
