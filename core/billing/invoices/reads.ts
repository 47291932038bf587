import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import {
  type AccountId,
  type AppId,
  type UserKey,
  isUuid,
  ownerAccountSubject,
} from '../../shared/ids.ts'
import type { Secrets } from '../../shared/secrets.ts'
import type { Users } from '../../identity/users/users.ts'
import { findSettings, isPlatformApp } from '../store.ts'
import { readLink, signLink } from './links.ts'
import { noInvoice } from './notes.ts'
import * as store from './read-store.ts'
import type { StoredDocument, StoredLine } from './read-store.ts'

export interface ReadsDeps {
  readonly pool: Pool
  readonly publicUrl: string
  readonly secrets: Pick<Secrets, 'store' | 'candidates'>
  readonly users: Pick<Users, 'get'>
  /** Returns the owner's account in the platform app; null if no owner pays. */
  readonly findOwnerAccount: (app: AppId) => Promise<UserKey | null>
}

/** A caller, as far as it decides what is shown. */
export interface Reader {
  readonly appId: AppId
  /**
   * The account that reads, which sees its own invoices whole: the apps of others on an owner's
   * invoice are hidden from it, even if it is another owner of the app. Null for operators.
   */
  readonly account: AccountId | null
}

export interface ListQuery {
  /** From 1; 0 means 1. */
  readonly page: number
  /** 0 means the default. */
  readonly pageSize: number
  readonly externalUserId: string | undefined
  readonly payer: string | undefined
}

export interface ShownDocument extends StoredDocument {
  readonly lines: readonly StoredLine[]
  /** Null if the reader may not see all lines. */
  readonly url: string | null
}

const defaultPageSize = 20
const pageSizeMax = 100
const pageMax = 10_000

/** Reads invoices for people (docs/invoices.md). */
export function createInvoiceReads({
  pool,
  publicUrl,
  secrets,
  users,
  findOwnerAccount,
}: ReadsDeps) {
  /**
   * Lists a page of documents, newest first, without their lines: those that the app issued, or
   * those of its owner. Large numbers are clamped. Throws REQUEST_INVALID for an unknown payer.
   */
  async function list(reader: Reader, { externalUserId, payer, ...query }: ListQuery) {
    const page = Math.min(query.page || 1, pageMax)
    const pageSize = Math.min(query.pageSize || defaultPageSize, pageSizeMax)
    const selection = await select(reader.appId, { externalUserId, payer })
    if (selection === null) return { items: [], page, pageSize, totalCount: 0 }
    const offset = (page - 1) * pageSize
    const documents = await store.listDocuments(pool, selection, { offset, limit: pageSize })
    const totalCount = await store.countDocuments(pool, selection)
    return { items: documents.map((one) => show(reader, one, [])), page, pageSize, totalCount }
  }

  /** Returns null for an app without invoices: the platform pays for it. */
  async function select(
    app: AppId,
    { externalUserId, payer }: Pick<ListQuery, 'externalUserId' | 'payer'>,
  ): Promise<store.Selection | null> {
    if (payer !== undefined && payer !== 'users' && payer !== 'owner')
      throw new DomainError('REQUEST_INVALID', 'payer must be users or owner')
    const isOfOwner = payer === undefined ? await paysAsOwner(app) : payer === 'owner'
    if (isOfOwner) return findOwnerAccount(app)
    if (externalUserId === undefined) return { appId: app, userId: null }
    return { appId: app, userId: (await users.get(app, externalUserId)).id }
  }

  async function paysAsOwner(app: AppId): Promise<boolean> {
    const { billingMode } = await findSettings(pool, app)
    return billingMode === 'owner_rollup' && !(await isPlatformApp(pool, app))
  }

  /**
   * Returns a document that the app issued, or its owner's, with its lines. Throws NOT_FOUND for
   * any other.
   */
  async function read(reader: Reader, id: string): Promise<ShownDocument> {
    const document = isUuid(id)
      ? ((await store.findDocument(pool, { appId: reader.appId, id })) ??
        (await findOfOwner(reader.appId, id)))
      : null
    if (document === null) throw noInvoice()
    return show(reader, document, await store.readLines(pool, document))
  }

  async function findOfOwner(app: AppId, id: string): Promise<StoredDocument | null> {
    const owner = await findOwnerAccount(app)
    const document = owner && (await store.findDocument(pool, { appId: owner.appId, id }))
    return document?.userId === owner?.userId ? document : null
  }

  function show(
    { appId, account }: Reader,
    document: StoredDocument,
    lines: readonly StoredLine[],
  ): ShownDocument {
    const isWhole =
      account === null ||
      document.externalUserId === ownerAccountSubject(account) ||
      document.appId === appId
    return {
      ...document,
      lines: isWhole ? lines : lines.map((line) => hideApp(line, appId)),
      url: isWhole ? `${publicUrl}/invoices/${signLink(document.id, secrets)}` : null,
    }
  }

  /** Returns the document of a signed link with its lines. Throws NOT_FOUND for a forged one. */
  async function readHosted(token: string): Promise<ShownDocument> {
    const id = readLink(token, secrets)
    const app = id === null ? null : await store.findInvoiceApp(pool, id)
    if (id === null || app === null)
      throw new DomainError('NOT_FOUND', 'this link to an invoice is not valid')
    return read({ appId: app, account: null }, id)
  }

  return { list, read, readHosted }
}

export type InvoiceReads = ReturnType<typeof createInvoiceReads>

/** Members of an app who are not its owner do not see the owner's other apps. */
const hideApp = (line: StoredLine, app: AppId): StoredLine =>
  line.chargedAppId === null || line.chargedAppId === undefined || line.chargedAppId === app
    ? line
    : {
        ...line,
        description: 'Usage of another app of the owner',
        chargedAppId: null,
        chargedClientId: null,
      }
