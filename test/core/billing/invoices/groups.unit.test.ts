import { expect, it } from 'vitest'
import { groupPeriods } from '../../../../core/billing/invoices/overage.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const idOf = (n: number) => `00000000-0000-4000-8000-00000000000${n}`
const [ada, bob] = [userId(idOf(1)), userId(idOf(2))]
const [shop, studio] = [appId(idOf(3)), appId(idOf(4))]

it('reads the units of the users of an app together, and of each owner and set of apps apart', () => {
  const users = [ada, bob].map((user) => ({ userId: user, isOwner: false, apps: [shop] }))
  const owners = [ada, bob].map((user) => ({ userId: user, isOwner: true, apps: [shop] }))
  const later = { userId: ada, isOwner: true, apps: [shop, studio] }
  const again = { userId: ada, isOwner: true, apps: [shop] }
  expect(groupPeriods([...users, ...owners, later, again])).toEqual([
    users,
    [owners[0], again],
    [owners[1]],
    [later],
  ])
})
