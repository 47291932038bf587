import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Connections } from '../processor/connections.ts'
import { findSettings, isPlatformApp } from '../store.ts'
import type { Unpaid } from './unpaid.ts'

/** Throws CONFLICT for an app that must not be deleted now (decision 67). */
export type RequireDeletable = (db: Db, app: AppId) => Promise<void>

/**
 * Creates the check before an app is deleted: it is not the platform app, nothing is unpaid, and no
 * account is connected.
 */
export const createDeletion =
  ({
    connections,
    unpaid,
  }: {
    readonly connections: Pick<Connections, 'findConnection'>
    readonly unpaid: Pick<Unpaid, 'requirePaid'>
  }): RequireDeletable =>
  async (db, app) => {
    if (await isPlatformApp(db, app))
      throw new DomainError('CONFLICT', 'the platform app cannot be deleted')
    const settings = await findSettings(db, app)
    await unpaid.requirePaid(db, { app, ...settings }, 'the app cannot be deleted')
    const { status } = await connections.findConnection(db, app)
    if (status !== 'disconnected')
      throw new DomainError(
        'CONFLICT',
        'the app cannot be deleted: its account at the payment processor is connected; disconnect it first (DELETE …/billing/processor)',
      )
  }
