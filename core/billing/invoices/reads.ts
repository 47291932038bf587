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
import type { DocumentKind } from './invoice-store.ts'
import { readLink, signLink } from './links.ts'
import { noInvoice } from './notes.ts'
import * as store from './read-store.ts'
import type { DocumentFilter, NoteOfInvoice, StoredDocument, StoredLine } from './read-store.ts'

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
  readonly status: string | undefined
  /** standard or credit_note. */
  readonly invoiceType: string | undefined
}

export interface ShownDocument extends StoredDocument {
  readonly lines: readonly StoredLine[]
  /** Of an invoice; empty in lists. */
  readonly notes: readonly NoteOfInvoice[]
  /** Of a credit note: the number of its invoice; null in lists. */
  readonly invoiceNumber: bigint | null
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
   * those of its owner. Large numbers are clamped. Throws REQUEST_INVALID for an unknown payer,
   * status or type.
   */
  async function list(reader: Reader, { externalUserId, payer, ...query }: ListQuery) {
    const filter = parseFilter(query)
    const page = Math.min(query.page || 1, pageMax)
    const pageSize = Math.min(query.pageSize || defaultPageSize, pageSizeMax)
    const selection = await select(reader.appId, { externalUserId, payer })
    if (selection === null) return { items: [], page, pageSize, totalCount: 0 }
    const offset = (page - 1) * pageSize
    const { documents, totalCount } = await find(selection, filter, { offset, limit: pageSize })
    return { items: documents.map((one) => show(reader, one)), page, pageSize, totalCount }
  }

  async function find(
    selection: store.Selection,
    filter: DocumentFilter,
    page: store.DocumentPage,
  ): Promise<{ documents: StoredDocument[]; totalCount: number }> {
    if (filter.status === null && filter.kind === null)
      return {
        documents: await store.listDocuments(pool, selection, page),
        totalCount: await store.countDocuments(pool, selection),
      }
    const { ids, count } = await store.listFiltered(pool, selection, { ...filter, ...page })
    const { appId } = selection
    return { documents: await store.findDocuments(pool, { appId, ids }), totalCount: count }
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
    const { appId, invoiceId } = document
    const lines = await store.readLines(pool, document)
    return {
      ...show(reader, document, lines),
      notes: invoiceId === null ? await store.listNotesOf(pool, document) : [],
      invoiceNumber:
        invoiceId === null ? null : await store.findInvoiceNumber(pool, { appId, id: invoiceId }),
    }
  }

  async function findOfOwner(app: AppId, id: string): Promise<StoredDocument | null> {
    const owner = await findOwnerAccount(app)
    const document = owner && (await store.findDocument(pool, { appId: owner.appId, id }))
    return document?.userId === owner?.userId ? document : null
  }

  function show(
    { appId, account }: Reader,
    document: StoredDocument,
    lines: readonly StoredLine[] = [],
  ): ShownDocument {
    const isWhole =
      account === null ||
      document.externalUserId === ownerAccountSubject(account) ||
      document.appId === appId
    return {
      ...document,
      notes: [],
      invoiceNumber: null,
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

function parseFilter({
  status,
  invoiceType,
}: Pick<ListQuery, 'status' | 'invoiceType'>): DocumentFilter {
  return {
    status: status === undefined ? null : parseStatus(status),
    kind: invoiceType === undefined ? null : parseKind(invoiceType),
  }
}

function parseStatus(text: string): store.InvoiceStatus {
  const status = store.invoiceStatuses.find((one) => one === text)
  if (status !== undefined) return status
  const names = store.invoiceStatuses.join(', ')
  throw new DomainError('REQUEST_INVALID', `status must be one of: ${names}`)
}

function parseKind(text: string): DocumentKind {
  if (text === 'credit_note') return text
  if (text === 'standard') return 'invoice'
  throw new DomainError('REQUEST_INVALID', 'invoiceType must be standard or credit_note')
}

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
